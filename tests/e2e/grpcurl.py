"""Does what the guide asks of grpcurl, which is a Go program: lists services and calls methods, all by reflection."""

import sys

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub


class Presenting(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    def __init__(self, metadata):
        self._metadata = metadata

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(details._replace(metadata=self._metadata), request)

    intercept_stream_stream = intercept_unary_unary


def main(arguments):
    metadata, data = [], "{}"
    while arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-H":
            name, _, value = arguments.pop(0).partition(": ")
            metadata.append((name, value))
        elif option == "-d":
            data = arguments.pop(0)
        else:
            assert option == "-plaintext", option
    address, wanted = arguments

    with grpc.insecure_channel(address) as plain:
        channel = grpc.intercept_channel(plain, Presenting(metadata))
        if wanted == "list":
            asked = iter([ServerReflectionRequest(list_services="")])
            answer = next(iter(ServerReflectionStub(channel).ServerReflectionInfo(asked)))
            sys.stdout.write("".join(f"{service.name}\n" for service in answer.list_services_response.service))
            return
        service, _, method = wanted.partition("/")
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        found = pool.FindServiceByName(service).FindMethodByName(method)
        request = json_format.Parse(data, GetMessageClass(found.input_type)())
        call = channel.unary_unary(
            f"/{wanted}", type(request).SerializeToString, GetMessageClass(found.output_type).FromString
        )
        sys.stdout.write(json_format.MessageToJson(call(request), preserving_proto_field_name=True) + "\n")


main(sys.argv[1:])
