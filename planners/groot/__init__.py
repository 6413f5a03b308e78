"""Behaviour trees as Groot's editor reads and writes them: the XML of BehaviorTree.CPP 4.

`write` makes it from a definition, `read` makes a definition from it, `names` says which node is called what there.
What both know (sequence, fallback, parallel, the usual decorators, subtrees) has their names; our own nodes are
declared in the file, so that the editor shows them. Nothing of a definition is lost on the way there and back.
"""
