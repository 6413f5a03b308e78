"""Every bound and its reason. Units are in the names; relations between them are held by a test.

A limit that a deployment may want to change is a setting with one of these as its default or ceiling.
"""

# What people send.
DEFINITION_BYTES_MAX = 1024 * 1024  # a definition is read and compiled inside a request
DEFINITION_DEPTH_MAX = 64  # deeper nesting is an attack on the parser, not a workflow
DEFINITION_ALIASES_MAX = 100  # YAML aliases multiply; a few are a convenience, thousands are a bomb
DEFINITION_VALUES_MAX = 100_000  # values with every alias written out: what validating really has to walk
PROBLEMS_SHOWN_MAX = 50  # nobody reads further before fixing the first ones
STATES_PER_WORKFLOW_MAX = 2_000
TREE_NODES_MAX = 5_000  # with every subtree written out where it is used
TREE_LOOPS_MAX = 10_000  # rounds of a `retry` or `repeat`: the bound that every loop must have
TREE_NODES_PER_TICK = 150  # nodes begun: a tick that would begin more goes on in another, and takes under 1 ms
TREE_SLICES_MAX = 3_000  # ticks in a row with nothing from outside between them: more is a tree that turns in circles
CHILDREN_FOLLOWED_MAX = 100  # workflows looked at to see whether a new one would start itself
BRANCHES_MAX = 100  # branches of one parallel state
MAP_CONCURRENCY_MAX = 1_000  # items of one map state under way at once
MAP_ITEMS_MAX = 100_000
LOOP_MAX = 100_000  # the highest bound a loop or a cycle may be given
HOPS_PER_ANSWER_MAX = 2 * STATES_PER_WORKFLOW_MAX  # states passed without waiting for anything: more is no progress
EXPRESSION_CHARS_MAX = 4_096  # a condition should fit on a screen; bounds compile time
EXPRESSIONS_PER_WORKFLOW_MAX = 10_000  # each takes up to 1 ms to compile, inside a request
EXPRESSIONS_SHARED_MAX = 4_000  # compiled ones that equal texts share, a few kilobytes each; others are compiled again
EXPRESSION_MACROS_MAX = 4  # each `map`, `filter`, `all`, `exists` walks a list, and a chain of them can double it
EXPRESSION_MACRO_DEPTH_MAX = 2  # one inside another multiplies the walks
EXPRESSION_ADDITIONS_MAX = 16  # `x + x` inside a chain of macros is how a small expression makes gigabytes
EXPRESSION_ITEMS_MAX = 300  # `map` and `filter` cost the square of the list: 2 ms each here, 20 ms at a thousand
EXPRESSION_WORDS_MAX = 500  # names, values and operators: each costs some 20 µs to compile
EXPRESSION_PATTERN_CHARS_MAX = 500  # a regular expression longer than this is a program
EXPRESSION_RESULT_MAX = 5_000  # values in a result that was put together: the engines copy each of them
EXPRESSION_ITEMS_NESTED_MAX = 50  # one of them inside another macro costs the cube
EXPRESSION_ITERATIONS_MAX = 10_000  # in one evaluation: the bound of Google's runtime
EXPRESSION_OPERATIONS_MAX = 30_000  # words of the bodies of macros times the items they walk: under 10 ms on any engine
JSONPATH_VALUES_MAX = 8_000  # values one search may look at: a few milliseconds
EXPRESSION_VOLUME_MAX = 25_000  # values read by comparisons and searches, 64 characters counting as one
REQUEST_BYTES_MAX = 256 * 1024 * 1024  # read into memory as a whole, so several at once must fit

# What travels. NATS refuses messages above 1 MiB unless told otherwise; the envelope needs room beside the payload.
BUS_MESSAGE_BYTES_MAX = 1024 * 1024
PAYLOAD_BYTES_MAX = 512 * 1024  # of one value inside a message; above CLAIM_CHECK_BYTES it travels beside
VALUE_BYTES_MAX = 1024**3  # what an agent or a tool may answer: it is held in the worker's memory, once as JSON

# What is too large to travel or to stay in the history goes to the artifact store and is fetched where it is needed.
CLAIM_CHECK_BYTES = 256 * 1024
ARTIFACT_BYTES_MAX = 64 * 1024**3  # no value anyone computes with: a stream that never ends

# How hard we try.
STEP_ATTEMPTS_MAX = 100
RETRY_DELAY_MS_MAX = 24 * 3600 * 1000
STEP_TIMEOUT_MS_DEFAULT = 5 * 60 * 1000
TIMEOUT_MS_MAX = 365 * 24 * 3600 * 1000
CHILD_DEPTH_MAX = 32  # workflows that start workflows; deeper is a circle
STEP_LOST_MAX = 5  # workers a step may take with it before it is called poison
INTENTS_PER_ANSWER_MAX = 20_000  # one decision is one transaction: an execution that wants more at once fails
REQUESTS_REMEMBERED_MAX = 1_000  # ids of signals and orders an execution knows again; a repeat comes soon or never
SIGNALS_KEPT_MAX = 1_000  # signals nobody waits for yet; more than these are not taken

# How much is under way at once.
COMMIT_BATCH_MAX = 512  # messages decided in one transaction: keeps the longest commit short
COMMIT_FIRST_MAX = 32  # of them while nothing is being written: the rest is decided beside the database's work
COMMIT_QUEUE_MAX = 8_192  # starts waiting for a commit; beyond it the API answers 503 instead of growing
FEED_EXECUTIONS_MAX = 1_000  # named in one message, so that it stays small
COMMIT_QUEUE_TENANT_MAX = 2_048  # of one tenant, so that there is always room for another's
INBOX_IN_FLIGHT_MAX = 4_096  # results delivered to a shard owner and not yet acked
ANSWERS_AT_ONCE_MAX = 256  # requests over the bus being answered on one subject
ANSWERS_WAITING_MAX = 8_192  # of them that wait; beyond it nobody is answered in time anyway
ADMIT_AT_ONCE = 1_000  # queued executions that enter or get room in one transaction
PRIORITY_MAX = 100  # and as far below zero: an order, not a number to compute with
WORKFLOW_CONCURRENCY_MAX = 1_000_000
PAUSED_AT_ONCE = 500  # when a whole deployment is paused: a page of its executions, committed together
OPEN_EXECUTIONS_MAX = 20_000  # executions an owner keeps in memory; idle ones beyond it are read again when needed
DISPATCH_WINDOW = 1_024  # steps of a tenant that an agent has at once: a flood waits at its owner, not in the mailbox
AGENT_CONCURRENCY_DEFAULT = 64
AGENT_CONCURRENCY_MAX = 4_096  # of one worker
AGENT_UNACKED_MAX = 65_536  # steps of an agent with all its workers, the dead included until their ack wait is over
EVENTS_PAGE_MAX = 1_000
LOOKED_BACK_EVENTS_MAX = 20_000  # of one execution, put through its program again to explain it: about a second
FORK_EVENTS_MAX = 10_000  # taken over from another execution in one decision and one commit: some 0.2 s of its owner
BREAKPOINTS_MAX = 100  # of one execution; each answer of its program is compared with them
EVENTS_PAGE_BYTES_MAX = 16 * 1024 * 1024  # of large values in one page; the next page has the rest
LIST_PAGE_MAX = 200
LIST_PAGE_DEFAULT = 50
LIST_COUNT_MAX = 10_000  # a longer list is not counted to its end: nobody reads further, and counting reads every row
LIST_LOOKED_AT_MAX = 10_000  # rows looked into for one page of a list filtered by what no index knows
GZIP_BYTES_MIN = 1_400  # an answer that fits into one packet gains nothing
GZIP_ASIDE_BYTES = 64 * 1024  # larger ones are compressed beside the loop
WAIT_S_MAX = 300  # longest a caller may hold a request open

# Who watches.
LIVE_EVENTS_KEPT = 20_000  # newest events kept while anybody watches, once for all; who falls further behind is let go
LIVE_PAGE = 500  # events read, or handed to a reader, at once
LIVE_WINDOW = 5_000  # events that one question looks through for the few of a topic: some milliseconds
LIVE_PACE_S = 0.03  # looks into the store are no closer together, however much happens
LIVE_LOOK_S = 1.0  # a look without a hint from the bus, which may lose one
LIVE_IDLE_S = 15.0  # a watcher is told this often that there is nothing to tell; proxies cut what is silent for longer
LIVE_SEND_S = 30.0  # a watcher who takes nothing for this long is gone
LIVE_SUBSCRIPTIONS_MAX = 100  # of one WebSocket
RPC_KEEPALIVE_S = 30  # a silent gRPC connection is asked this often whether it still lives
RPC_KEEPALIVE_ANSWER_S = 10  # and has this long to answer; callers may ask as often
LIVE_MESSAGE_BYTES_MAX = 64 * 1024  # what a watcher may say at once

# Long operations, and looking back at many executions.
JOBS_AT_ONCE = 2  # of one control plane; they share its core with the executions under way
JOBS_UNFINISHED_MAX = 100  # of one tenant
JOBS_LOOK_S = 10.0  # a job that another control plane left behind is taken up after this, once its lease is over
JOB_LEASE_S = 15.0  # who has taken a job and is silent for this long has lost it
JOB_PROGRESS_S = 0.5  # how far a job is is written this often at most
JOB_ATTEMPTS_MAX = 3  # control planes that may die with a job before it counts as what kills them
REPLAYS_PER_JOB_MAX = 1_000
REPLAYS_BEFORE_DEPLOYMENT = 50  # of the newest executions, decided again by a version before it is registered
TRACE_EXECUTIONS_MAX = 200  # a parent and its children, in one trace that is looked at
TRACE_RECORDS_MAX = 4_000  # records of tool calls looked through for those of one trace
SNAPSHOT_EVENTS_AT_ONCE = 100  # read and folded before others have a turn: some milliseconds
SNAPSHOT_CHUNK_BYTES = 1024 * 1024  # lines of a snapshot handed to its writer together
SNAPSHOT_ENDED_WINDOW = 20_000  # events that one look for ended executions goes through: some 20 ms of the database
SNAPSHOT_ENDED_LOOK_S = 1.0  # how soon after its end an execution is looked at where its tenant wants a snapshot
SNAPSHOT_ENDED_REST = 4  # times as long as one took, before the next is taken: a fifth of a core at most
REPLAY_SLICE = 25  # decisions made again before others have a turn: about a millisecond

# Rhythm.
ACK_WAIT_S = 30  # after this much silence JetStream gives a step to another worker
SHARD_ACK_WAIT_S = 5  # a result that an owner took and did not commit goes to the next owner after this
PROGRESS_S = ACK_WAIT_S / 3  # a running step says so three times in that span
DEDUP_WINDOW_S = 120
DIRECT_RESULT_S = 1.0  # an owner that has not committed a result by then is slow or gone: the stream takes it
DIRECT_RESULTS_BYTES = 256 * 1024  # of results handed over in one message; a larger one travels alone
STEPS_BACK_BYTES = 256 * 1024  # of steps in the answer to them; what is beyond that goes by the mailbox
STEPS_BACK_S = DIRECT_RESULT_S / 2  # an answer that is later than this may find that nobody waits for it any more
STEPS_BACK_RUN = 16  # one in so many goes by the mailbox all the same, so that a worker which joins gets its share
BUS_CONFIRM_S = 5.0  # a confirmed publish outlives a restart of NATS; well inside the de-duplication window
SWEEP_S = 1.0
FEED_EVERY_S = 0.1  # what was committed is told together: nobody sees a shorter moment
ADMIT_AGAIN_S = 5.0  # how late a queued execution may be when the word that there is room got lost
BUS_BACK_S = 15.0  # after the bus was away: workers send what they kept within 5 s of it, and get what was never sent
RESEND_AFTER_S = 10.0  # a step with no outcome and an idle mailbox is sent again after this
CHILD_LOOK_S = 10.0  # a child that is still open is looked at after this, then after twice as long, and so on
CHILD_LOOK_S_MAX = 3600.0
HEARTBEAT_S = 1.0  # a worker's sign of life; broadcast, so a thousand workers cost a thousand small messages
HEARD_S = 1.5 * HEARTBEAT_S  # in this time every living worker has said what it holds
WORKER_LOST_AFTER_S = 5.0  # of silence, for a worker that may only be slow: its connection is there
WORKER_GONE_AFTER_S = 1.5  # of silence, for one whose connection has ended: all is free within two heartbeats
WORKER_LOOK_S = 0.2  # how often workers are looked after, and how long a late one may take to be asked
PULL_HEARTBEAT_S = 2.0  # JetStream's own, while a request for messages stands
PULL_EXPIRES_S = 5.0  # how long a worker that is gone may still be given messages; no longer than it takes to miss it
CONSUMER_STALL_S = 30.0  # messages wait, we ask for them, and none comes: the consumer is made anew
DRAIN_S = 30.0  # how long a stopping worker lets running steps finish

# Identity.
TOKEN_TTL_S = 3600  # a token's life unless its asker wants another; rights are looked up anew all the while
TOKEN_TTL_S_MAX = 24 * 3600  # also how long a signing key must be kept after its last signature
TOKEN_CLOCK_SKEW_S = 30  # how far ahead the clock of whoever issued a token may be
TOKEN_CHARS_MAX = 8_192  # of a presented token; ours have about 500
TOKEN_KID_CHARS_MAX = 128
SIGNING_KEY_DAYS = 30  # then another one signs
SIGNING_KEYS_REREAD_S = 1.0  # a key another control plane has just made is known here after this at the latest
CREDENTIAL_RECHECK_S = 10.0  # what was revoked elsewhere is refused here after this at the latest
CREDENTIAL_SPREAD_S = 0.25  # in which all open connections look again once somebody's rights have changed
CREDENTIALS_REMEMBERED_MAX = 10_000
PASSWORD_CHARS_MIN = 12
PASSWORD_CHARS_MAX = 1_024  # longer ones would only make us hash for longer
PASSWORDS_AT_ONCE = 2  # each takes 19 MiB and some 20 ms of a core
LOGIN_FAILURES_FREE = 5  # in a row; then each further one doubles the wait
LOGIN_FAILURES_FREE_ADDRESS = 50  # a whole office may come from one
LOGIN_WAIT_S_MAX = 900.0
LOGIN_FAILURES_REMEMBERED_MAX = 10_000
ISSUER_ANSWER_S = 10.0
ISSUER_ANSWER_BYTES_MAX = 1024 * 1024
ISSUER_KEYS_KEPT_S = 300.0  # a key that the issuer withdrew is believed for this long at most
ISSUER_KEYS_REREAD_S = 30.0  # however many tokens name keys that do not exist, the issuer is asked this rarely
QUOTA_REREAD_S = 5.0  # a changed quota holds everywhere after this at the latest
QUOTA_USE_REREAD_S = 1.0  # what other control planes let in is counted here after this
STORAGE_USE_REREAD_S = 10.0  # the use is counted in the background: see `STORAGE_COUNT_EVERY_S`
BUDGETS_MAX = 100  # of one tenant: what is spent of each is added up about every second
BUDGET_LOOK_S = 1.0  # what other control planes have spent is known here after this; our own commits count at once
BUDGETS_NONE_LOOK_S = 10.0  # while there is none: the first one is told over the bus, and a word may be lost
BUDGET_LOOK_SHARE = 0.05  # of the time at most goes into adding up: where that takes long, it is done less often
BUDGET_GO_ON_MAX = 2_000  # executions that go on after one look, so that they do not bury whatever else is decided
ESTIMATE_EXECUTIONS = 30  # newest completed ones that an estimate is calibrated by: more would be older, not better
ESTIMATE_EVENTS = 2_000  # read of each of them
ESTIMATE_OBSERVATIONS = 5_000  # of costs read for one estimate
RATES_REMEMBERED_MAX = 100_000  # tenants and users counted; those who have asked nothing lately are forgotten
REDIS_ANSWER_S = 0.25  # a request must not wait for the counting of requests
REDIS_RETRY_S = 2.0  # then each control plane counts for itself for so long

# Audit.
AUDIT_BATCH_MAX = 500  # records written, or chained, in one transaction: some 20 ms
AUDIT_WAITING_MAX = 10_000  # refusals and the like that wait to be written; a caller beyond it is told to come again
AUDIT_SEQUENCE_S = 0.5  # records are chained together this often: none waits for its place for a second
AUDIT_LOOK_S = 10.0  # records whose writer died before saying a word are found after this
AUDIT_CLOCKS_APART_MS = 3_600_000  # between whoever records and whoever chains, when a record is looked for again
AUDIT_IN_FLIGHT_MAX = 1_000  # records of tools handed to us and not yet durable

# What a worker keeps.
SPOOL_MB = 256  # results on disk while the bus is away; beyond it they stay in memory, and no more steps are taken
AGENT_STATE_BYTES_MAX = 512 * 1024  # compressed; it travels in one message
WORKSPACE_SHEETS_MAX = 512  # of one version of a workspace: bringing it back reads no more artifacts than that
WORKSPACE_OUTGROWN = 2  # a version whose sheets have so many times what it holds begins with a whole one again
WORKSPACE_SHEETS_BYTES_MIN = 1024 * 1024  # but not below: a small workspace is cheap to bring back anyhow
WORKSPACE_SHELF_BYTES_MAX = 1024**3  # of versions on one shelf; a workspace keeps two, and a fork finds those
AGENT_STATE_ANSWERS_MAX = 16  # newest answers a state remembers, so that a repeated step is not applied twice

# The database.
DATABASE_CONNECT_S = 10.0
DATABASE_ANSWER_S = 30.0  # a statement or a wait for a connection longer than this counts as no answer
DATABASE_IDLE_S = 5.0  # PostgreSQL only: between two statements of a transaction; then it is ended, and its locks go
CLOCK_LOOK_S = 10.0  # how often a control plane asks PostgreSQL for the time: one small query
CLOCK_SLACK_MS = 100  # two clocks that differ by less agree
DATABASE_PROBE_S = 2.0  # a readiness check should answer while whoever asked still listens
DATABASE_READERS_MAX = 8  # connections for what callers ask; commits have their own, so a list never delays one
DATABASE_SYSTEM_READERS_MAX = 4  # PostgreSQL only: connections that read across tenants (recovery, projections)
DATABASE_WRITERS_MAX = 4  # PostgreSQL only: SQLite has one writer by nature
WRITTEN_MAX = 50_000  # open executions whose newest version a writer remembers, some 200 bytes each
DAYS_AHEAD = 3  # parts of divided tables made before their day comes; a weekend without maintenance costs nothing
DAYS_LOCK_WAIT_S = 0.2  # making or dropping a day gives way to work and is tried again later
DAY_MOVED_ROWS_MAX = 1_000  # of a day: so few move to the default part while everybody waits; with more, the day stays
DAY_DROP_REST_S_PER_MB = 0.028  # freeing a megabyte of files holds up commits for some 0.13 ms: so, one in 215 at most
DAY_DROP_REST_S_MAX = 60.0
DAYS_DROPPED_TOGETHER = 8  # emptied ones: everybody waits for some ms and plans anew, once for all of them
PURGE_BATCH = 10  # executions deleted in one transaction: some hundred events, so that commits beside it wait briefly
PURGE_REST = 12  # after such a batch it rests so many times as long as the batch took
PURGE_READ_REST = 3  # after some ids were read, likewise: reading holds up no commit, but takes a core from them
PURGE_REST_S_MAX = 5.0
PURGE_NICE = 10  # how far the daily purge's process stands back from everybody else
DAY_DROP_ATTEMPTS = 5  # after which what is over in it is deleted row by row
STORAGE_COUNT_EVERY_S = 10.0  # a small deployment knows how much it stores after this; a large one, by the rests, later
STORAGE_COUNT_PAGE = 10_000  # rows added up in one query: some 30 ms, a second where rows are large
STORAGE_COUNT_REST = 50  # after a page it rests so many times as long as the page took: a fiftieth of one core
STATE_SNAPSHOT_EVENTS = 200  # an execution is taken up from its newest snapshot and at most about this many events
STATE_SNAPSHOT_BYTES = 256 * 1024  # a packed state above a multiple of this is stored that many times less often
RECOVER_AT_ONCE = 500  # executions that a new owner reads in one query
HOP_S = 30.0  # how long a replica looks for the owner of a shard before its caller is told to try again
REBUILD_AT_ONCE = 50  # executions whose projections are made anew in one transaction, while appends wait
LEASE_S = 10.0  # a shard whose owner has been silent for this long may be taken over
RETENTION_EVERY_S = 24 * 3600  # the purge is daily; whichever control plane comes first does it
RETENTION_ORPHAN_S = 24 * 3600  # an artifact without an execution may belong to one that is just being committed
PLANS_CACHED_MAX = 64  # static plans that were looked at lately; one is as large as its workflow
PROGRAMS_CACHED_MAX = 512  # compiled workflows kept ready; a missing one costs one query and one compilation
NEWEST_VERSION_KNOWN_S = 1.0  # a version registered by another replica is the newest here after this at the latest
VERSIONS_LISTED_MAX = 1_000  # versions of one workflow in one answer; `GET /workflows` pages through more
SUGGESTION_NAMES_MAX = 1_000  # names looked through for "did you mean"
SANDBOX_WARM_P50_MS_MAX = 100  # of a call in a warm container or gVisor: nobody notices a tenth of a second
SANDBOX_WARM_P95_MS_MAX = 400
WASM_WARM_MS_MAX = 10  # a module needs no process: it must not cost more than a query
