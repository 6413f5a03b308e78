"""A bus that is away and comes back: nothing is lost, nothing is done twice, nobody has to be restarted (UA-19 b, d).

The bus of every test is the very server that the embedded platform starts; what differs between the modes is the
database, so both are tried.
"""

from tests.faults.deployment import deployed
from tests.faults.outage import bus_is_away

# Longer than the ack wait (2), the lease (2), the time after which a silent worker is given up (3) or a step is sent
# again (1), and longer than a worker's own request for messages stands (5).
AWAY_S = 7.0


async def test_a_bus_that_was_away_is_caught_up_with_and_nothing_is_lost_or_done_twice(nats, database_dsn, tmp_path):
    async with deployed(tmp_path, database_dsn, nats) as here:
        await bus_is_away(here, nats, for_s=AWAY_S, within_s=40)
