"""The CEL engine for platforms without a wheel of Google's: the grammar is celpy's, the rest is here.

`syntax` (the one door to celpy) makes a `tree`, `types` checks it as Google's checker would, `run` turns it into
functions over plain data, with the arithmetic of `values` and `times`. celpy's own evaluator is left aside: it
differs from the language in how it compares and converts numbers, and is fifty times slower (ADR 0004).
"""
