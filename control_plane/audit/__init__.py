"""What was done by whom, kept so that it can be proved later: notes of requests, the chain, what workers tell of tools.

A note is written in the transaction of what it tells of (`notes`); a sequencer moves it into its tenant's chain soon
after. Records hold who, what and when, never a secret and never what people sent. No SQL, no HTTP.
"""
