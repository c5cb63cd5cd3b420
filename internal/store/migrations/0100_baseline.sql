-- +goose Up

-- The schema of 1.1.0. Times are microseconds since 1970 in UTC, 0 for none. Words in double braces differ between engines.

CREATE TABLE settings (
    name  {{TEXT}}  NOT NULL,
    value {{BYTES}} NOT NULL,
    PRIMARY KEY (name)
){{ROWID}};

-- purpose is NULL for keys that sign API keys and access tokens, 'statement' for keys that sign offers and receipts.
CREATE TABLE signing_keys (
    kid        {{TEXT}}  NOT NULL,
    public     {{BYTES}} NOT NULL,
    sealed     {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    retired_at BIGINT    NOT NULL,
    purpose    TEXT,
    PRIMARY KEY (kid)
){{ROWID}};

-- Workspaces. name is the operator's unique name for it, title the name that its members chose; NULL for none. exported_at is the time when
-- the owner received the key of the wallet and became able to sign with it too. suspended_at is the time since when the workspace sells
-- nothing; NULL or 0: it is not suspended.
CREATE TABLE principals (
    address      {{TEXT}}  NOT NULL,
    name         {{TEXT}},
    sealed_key   {{BYTES}} NOT NULL,
    created_at   BIGINT    NOT NULL,
    is_operator  BOOLEAN,
    exported_at  BIGINT,
    title        {{TEXT}},
    suspended_at BIGINT,
    PRIMARY KEY (address)
){{ROWID}};
CREATE UNIQUE INDEX principals_name ON principals (name);
CREATE INDEX principals_created ON principals (created_at, address);

-- hash is the SHA-256 of the key's JWT. The key itself is not stored. made_by is local, user, key or grant; parent is the API key or the
-- consent that created the key, NULL for none. rights are words separated by spaces. user_id is the person under whose membership the key
-- stands, NULL for none.
CREATE TABLE api_keys (
    id           {{BYTES}} NOT NULL,
    address      {{TEXT}}  NOT NULL,
    hash         {{BYTES}} NOT NULL,
    name         {{TEXT}},
    prefix       {{TEXT}}  NOT NULL,
    tail         {{TEXT}}  NOT NULL,
    version      {{TEXT}}  NOT NULL,
    created_at   BIGINT    NOT NULL,
    expires_at   BIGINT    NOT NULL,
    revoked_at   BIGINT    NOT NULL,
    last_used_at BIGINT    NOT NULL,
    made_by      {{TEXT}}  NOT NULL,
    parent       {{BYTES}},
    rights       TEXT,
    user_id      {{BYTES}},
    suspended_at BIGINT,
    PRIMARY KEY (id)
){{ROWID}};
CREATE INDEX api_keys_address ON api_keys (address, created_at, id);
CREATE INDEX api_keys_parent ON api_keys (parent) WHERE parent IS NOT NULL;
CREATE INDEX api_keys_user ON api_keys (user_id, address) WHERE user_id IS NOT NULL;

-- metadata, price and credits are JSON. name repeats the name in metadata, for sorting. nonce is the registration nonce, NULL without one;
-- body_hash is the hash of the registration under it. version is 1 at the registration and grows by 1 with each change.
CREATE TABLE plans (
    plan_id      {{TEXT}} NOT NULL,
    owner        {{TEXT}} NOT NULL,
    name         {{TEXT}} NOT NULL,
    metadata     TEXT     NOT NULL,
    price        TEXT     NOT NULL,
    credits      TEXT     NOT NULL,
    access_limit TEXT     NOT NULL,
    max_orders   BIGINT   NOT NULL CHECK (max_orders >= 0),
    is_trial     BOOLEAN  NOT NULL,
    is_listed    BOOLEAN  NOT NULL,
    nonce        {{TEXT}},
    body_hash    {{BYTES}},
    created_at   BIGINT   NOT NULL,
    updated_at   BIGINT   NOT NULL,
    mirrored     BOOLEAN  NOT NULL,
    version      BIGINT   NOT NULL,
    suspended_at BIGINT,
    PRIMARY KEY (plan_id)
);
CREATE UNIQUE INDEX plans_nonce ON plans (owner, nonce);
CREATE INDEX plans_owner ON plans (owner, created_at, plan_id);
CREATE INDEX plans_mirrored ON plans (plan_id) WHERE mirrored;

-- The receivers of an owner's plans: a payment to another receiver is rejected without reading the plans.
CREATE TABLE plan_receivers (
    owner    {{TEXT}} NOT NULL,
    receiver {{TEXT}} NOT NULL,
    PRIMARY KEY (owner, receiver)
){{ROWID}};

-- version is 1 at the registration and grows by 1 with each change.
CREATE TABLE agents (
    agent_id           {{TEXT}} NOT NULL,
    owner              {{TEXT}} NOT NULL,
    name               {{TEXT}} NOT NULL,
    metadata           TEXT     NOT NULL,
    api                TEXT     NOT NULL,
    sealed_credentials {{BYTES}},
    is_listed          BOOLEAN  NOT NULL,
    created_at         BIGINT   NOT NULL,
    updated_at         BIGINT   NOT NULL,
    version            BIGINT   NOT NULL,
    PRIMARY KEY (agent_id)
);
CREATE INDEX agents_owner ON agents (owner, created_at, agent_id);

CREATE TABLE agent_plans (
    agent_id {{TEXT}} NOT NULL REFERENCES agents (agent_id),
    plan_id  {{TEXT}} NOT NULL REFERENCES plans (plan_id),
    position BIGINT   NOT NULL,
    PRIMARY KEY (agent_id, plan_id)
){{ROWID}};
CREATE INDEX agent_plans_plan ON agent_plans (plan_id, agent_id);

-- The description of an endpoint in a payment for it. The catalogue shows it beside what the builder registered.
CREATE TABLE discovered (
    agent_id   {{TEXT}} NOT NULL REFERENCES agents (agent_id),
    verb       {{TEXT}} NOT NULL,
    url        {{TEXT}} NOT NULL,
    mime_type  TEXT     NOT NULL,
    info       TEXT     NOT NULL,
    updated_at BIGINT   NOT NULL,
    PRIMARY KEY (agent_id, verb, url)
){{ROWID}};

-- One row for each (plan, subscriber). The counters prove conservation in every committed state. hot holds changes to lots and permissions
-- that most settlements make (ledger/hot.go). version counts the writes of the row. The account is low below low_mark, a share of its last
-- grant. hot is NULL while there are none.
CREATE TABLE accounts (
    account_id    {{BYTES}} NOT NULL,
    plan_id       {{TEXT}}  NOT NULL,
    subscriber    {{TEXT}}  NOT NULL,
    balance       BIGINT    NOT NULL CHECK (balance >= 0),
    held          BIGINT    NOT NULL CHECK (held >= 0),
    open_holds    BIGINT    NOT NULL CHECK (open_holds >= 0),
    minted        BIGINT    NOT NULL CHECK (minted >= 0),
    burned        BIGINT    NOT NULL CHECK (burned >= 0),
    expired       BIGINT    NOT NULL CHECK (expired >= 0),
    taken_back    BIGINT    NOT NULL CHECK (taken_back >= 0),
    returned      BIGINT    NOT NULL CHECK (returned >= 0),
    seq           BIGINT    NOT NULL,
    commitment    {{BYTES}} NOT NULL,
    next_lot_end  BIGINT    NOT NULL,
    next_hold_end BIGINT    NOT NULL,
    period_end    BIGINT    NOT NULL,
    orders        BIGINT    NOT NULL,
    updated_at    BIGINT    NOT NULL,
    version       BIGINT    NOT NULL,
    hot           {{BYTES}},
    low_mark      BIGINT    NOT NULL,
    PRIMARY KEY (account_id),
    CHECK (held <= balance),
    CHECK (minted - burned - expired - taken_back + returned = balance)
){{PARTITION}}{{ROOM}}{{ROWID}};
CREATE INDEX accounts_lot_end ON accounts (next_lot_end);
CREATE INDEX accounts_hold_end ON accounts (next_hold_end);
CREATE INDEX accounts_plan ON accounts (plan_id, subscriber, account_id);
CREATE INDEX accounts_subscriber ON accounts (subscriber, plan_id, account_id);

-- Lots are numbered by the entry that minted them, so that lots with the same end burn in order of creation. A lot of a reversed order ends
-- at the reversal: taken counts the credits taken back so far, and old_end is its end before, 0 if it is not reversed. open is 1 while
-- credits are left: an index on remaining itself would change with every burn.
CREATE TABLE lots (
    account_id {{BYTES}} NOT NULL,
    lot_id     BIGINT    NOT NULL,
    ref        {{TEXT}}  NOT NULL,
    granted    BIGINT    NOT NULL CHECK (granted >= 0),
    remaining  BIGINT    NOT NULL CHECK (remaining >= 0),
    ends_at    BIGINT    NOT NULL,
    taken      BIGINT    NOT NULL CHECK (taken >= 0),
    old_end    BIGINT    NOT NULL,
    open       BIGINT    NOT NULL,
    PRIMARY KEY (account_id, lot_id),
    CHECK (remaining <= granted)
){{PARTITION}}{{ROOM}}{{ROWID}};
CREATE INDEX lots_burn_order ON lots (account_id, ends_at, lot_id) WHERE open = 1;
CREATE UNIQUE INDEX lots_ref ON lots (account_id, ref);

CREATE TABLE permissions (
    account_id       {{BYTES}} NOT NULL,
    permission_hash  {{BYTES}} NOT NULL,
    plan_id          {{TEXT}}  NOT NULL,
    subscriber       {{TEXT}}  NOT NULL,
    agent_id         TEXT      NOT NULL,
    allowed_agents   TEXT      NOT NULL,
    scheme           TEXT      NOT NULL,
    network          TEXT      NOT NULL,
    delegation_id    TEXT      NOT NULL,
    redemption_limit BIGINT,
    order_limit      BIGINT,
    redeemed         BIGINT    NOT NULL CHECK (redeemed >= 0),
    held             BIGINT    NOT NULL CHECK (held >= 0),
    open_holds       BIGINT    NOT NULL CHECK (open_holds >= 0),
    orders           BIGINT    NOT NULL,
    last_burn        BIGINT    NOT NULL,
    metadata         TEXT      NOT NULL,
    api_key_id       TEXT      NOT NULL,
    created_at       BIGINT    NOT NULL,
    expires_at       BIGINT    NOT NULL,
    revoked_at       BIGINT    NOT NULL,
    PRIMARY KEY (account_id, permission_hash),
    CHECK (redemption_limit IS NULL OR redeemed + held <= redemption_limit)
){{PARTITION}}{{ROOM}}{{ROWID}};
CREATE INDEX permissions_hash ON permissions (permission_hash);
CREATE INDEX permissions_subscriber ON permissions (subscriber, created_at);
CREATE INDEX permissions_key ON permissions (api_key_id, permission_hash) WHERE api_key_id <> '';
CREATE INDEX permissions_ended ON permissions (expires_at);

-- Requests that are not settled. The journal has the settled ones. seller is the owner of the plan. seller and subscriber are NULL while
-- the request is held, so that holds and settlements write to neither index. A claim (state 4) is a lapsed hold that may still be settled.
CREATE TABLE requests (
    account_id       {{BYTES}} NOT NULL,
    agent_request_id {{TEXT}}  NOT NULL,
    state            BIGINT    NOT NULL,
    permission_hash  {{BYTES}} NOT NULL,
    agent_id         TEXT      NOT NULL,
    resource         TEXT      NOT NULL,
    held             BIGINT    NOT NULL CHECK (held >= 0),
    hold_ends_at     BIGINT    NOT NULL,
    created_at       BIGINT    NOT NULL,
    ended_at         BIGINT    NOT NULL,
    order_tx         TEXT      NOT NULL,
    seller           {{TEXT}},
    subscriber       {{TEXT}},
    PRIMARY KEY (agent_request_id, account_id)
){{PARTITION}};
CREATE INDEX requests_open ON requests (account_id, hold_ends_at) WHERE state = 1;
CREATE INDEX requests_claims ON requests (account_id, permission_hash, hold_ends_at) WHERE state = 4;
CREATE INDEX requests_over ON requests (account_id, permission_hash) WHERE state <> 1;
CREATE INDEX requests_seller ON requests (seller, ended_at, account_id, agent_request_id) WHERE seller IS NOT NULL;
CREATE INDEX requests_subscriber ON requests (subscriber, ended_at, account_id, agent_request_id) WHERE subscriber IS NOT NULL;

-- A payload nonce or a payment identifier names one request of an account.
CREATE TABLE request_keys (
    account_id       {{BYTES}} NOT NULL,
    request_key      {{TEXT}}  NOT NULL,
    agent_request_id {{TEXT}}  NOT NULL,
    PRIMARY KEY (account_id, request_key)
){{PARTITION}}{{ROWID}};

-- The cost of the work for a request, as its builder records it. A row burns no credits.
CREATE TABLE sub_tasks (
    account_id       {{BYTES}} NOT NULL,
    agent_request_id {{TEXT}}  NOT NULL,
    sub_task_id      {{TEXT}}  NOT NULL,
    credits          BIGINT    NOT NULL CHECK (credits >= 0),
    tag              TEXT      NOT NULL,
    description      TEXT      NOT NULL,
    status           TEXT      NOT NULL,
    metadata         TEXT      NOT NULL,
    created_at       BIGINT    NOT NULL,
    PRIMARY KEY (account_id, agent_request_id, created_at, sub_task_id)
){{PARTITION}}{{ROWID}};

-- Every entry of every account, in the order of commits: pos is 1, 2, 3 and so on without a gap. Rows are only ever added. ref is packed
-- (see JournalRow). body holds the flags of the entry and, for a burn, the request and its answer. Each request has one burn. Ids of
-- requests ascend with time, so journal_burns grows at its end.
CREATE TABLE journal (
    pos           {{POS}}   NOT NULL,
    seq           BIGINT    NOT NULL,
    kind          BIGINT    NOT NULL,
    amount        BIGINT    NOT NULL CHECK (amount >= 0),
    balance_after BIGINT    NOT NULL CHECK (balance_after >= 0),
    at            BIGINT    NOT NULL,
    account_id    {{BYTES}} NOT NULL,
    commitment    {{BYTES}} NOT NULL,
    ref           {{BYTES}} NOT NULL,
    body          {{BYTES}} NOT NULL,
    PRIMARY KEY (pos{{AND_ACCOUNT}})
){{PARTITION}};
CREATE UNIQUE INDEX journal_burns ON journal (ref, account_id) WHERE kind = 2;

-- The positions up to which the follower of the journal and other readers have processed all rows.
CREATE TABLE journal_cursors (
    name {{TEXT}} NOT NULL,
    pos  BIGINT   NOT NULL,
    PRIMARY KEY (name)
){{ROOM}}{{ROWID}};
INSERT INTO journal_cursors (name, pos) VALUES ('follower', 0), ('mirror', 0), ('usage', 0);

-- The follower writes this index. prefix is the first 8 bytes of a commitment.
CREATE TABLE journal_commitments (
    prefix BIGINT NOT NULL,
    pos    BIGINT NOT NULL,
    PRIMARY KEY (prefix, pos)
){{ROWID}};

-- The follower writes this index. positions are those of the 32 entries of an account from seq 32 * chunk + 1 on: 6 bytes each, big-endian.
CREATE TABLE journal_accounts (
    account_id {{BYTES}} NOT NULL,
    chunk      BIGINT    NOT NULL,
    positions  {{BYTES}} NOT NULL,
    PRIMARY KEY (account_id, chunk)
){{PARTITION}}{{ROOM}}{{ROWID}};

-- amount is a decimal number of base units. seller is the owner of the plan, so that one range of an index has the orders of all plans of
-- an address. open_key is NULL once an order is finished: an account has at most one open order of each key. rail pays the order, and cents
-- is the amount that counts against its delegation, or against the monthly limit of ordered_by, the person who had the wallet of the
-- workspace pay. session is JSON of the payment page. reading is how often the chain had been read for the delegation when the order was
-- created. reversed is 1 when the credits of an order were taken back because its payment turned out not to exist: taken_back came back,
-- loss had been used before, and open holds keep held_back, which is taken back when they end. held_cents is the amount that the delegation
-- of a failed order reserves while its payment may still show up. refunded_cents and refunded_credits were refunded. dispute is NULL,
-- 'open', 'won' or 'lost', and disputed_cents is the part of the payment that an open or lost dispute is about. replaces is the failed
-- order that this one replaces. withdrawn is the number of credits of a free order that its seller took back by hand. NULL is the zero
-- value.
CREATE TABLE orders (
    account_id       {{BYTES}} NOT NULL,
    order_id         {{TEXT}}  NOT NULL,
    plan_id          {{TEXT}}  NOT NULL,
    subscriber       {{TEXT}}  NOT NULL,
    status           TEXT      NOT NULL,
    tx_hash          TEXT      NOT NULL,
    credits          BIGINT    NOT NULL CHECK (credits >= 0),
    amount           TEXT      NOT NULL,
    currency         TEXT      NOT NULL,
    failure_reason   TEXT      NOT NULL,
    created_at       BIGINT    NOT NULL,
    updated_at       BIGINT    NOT NULL,
    open_key         {{TEXT}},
    rail             TEXT,
    delegation_id    TEXT,
    cents            BIGINT,
    permission_hash  {{BYTES}},
    request_id       {{TEXT}},
    session          TEXT,
    failure_code     TEXT,
    failure_params   TEXT,
    reading          BIGINT,
    reversed         BIGINT,
    taken_back       BIGINT,
    loss             BIGINT,
    held_back        BIGINT,
    refunded_cents   BIGINT,
    refunded_credits BIGINT,
    dispute          TEXT,
    replaces         {{TEXT}},
    seller           {{TEXT}},
    ordered_by       {{BYTES}},
    withdrawn        BIGINT,
    disputed_cents   BIGINT,
    held_cents       BIGINT,
    PRIMARY KEY (account_id, order_id)
){{PARTITION}};
CREATE INDEX orders_id ON orders (order_id);
CREATE UNIQUE INDEX orders_open ON orders (account_id, open_key) WHERE open_key IS NOT NULL;
CREATE INDEX orders_request ON orders (account_id, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX orders_seller ON orders (seller, created_at, order_id);
CREATE INDEX orders_subscriber ON orders (subscriber, created_at, order_id);
CREATE INDEX orders_plan ON orders (plan_id, created_at, order_id);
CREATE INDEX orders_account ON orders (account_id, created_at, order_id);
CREATE INDEX orders_returned ON orders (seller, created_at) WHERE refunded_cents > 0 OR reversed = 1 OR dispute IS NOT NULL;
CREATE INDEX orders_ordered_by ON orders (ordered_by, created_at) WHERE ordered_by IS NOT NULL;

-- The number of orders of a plan, over all accounts. max_orders limits it.
CREATE TABLE plan_orders (
    plan_id {{TEXT}} NOT NULL,
    orders  BIGINT   NOT NULL CHECK (orders >= 0),
    PRIMARY KEY (plan_id)
){{ROWID}};

-- Open orders that returned their place among the orders of their plan. plan_orders still counts them, and readers subtract them while the
-- order is open. Rows of decided orders have no effect and are removed when they are met.
CREATE TABLE returned_places (
    plan_id       {{TEXT}}  NOT NULL,
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    PRIMARY KEY (plan_id, order_id)
){{ROWID}};

-- A limit on money. spent_cents is the amount paid, reserved_cents the amount that orders in progress will take; transactions counts both.
-- max_transactions is 0 for no limit, plan_id and api_key_id are '' for any. revoking is true while permissions that name the revoked
-- delegation may still have to be revoked. owner_account is an account that the user holds, '' for the wallet that the service holds. Such
-- a delegation pays once it has a signature. The service disables it on the chain at disable_at; 0 for nothing to do. paid_cents is the
-- amount of its paid orders. beyond_cents is the excess that the chain had counted at the last reading, and unclear_cents is the part of it
-- that orders which were open then, and still are, may have taken. readings counts the readings. spent_cents follows from these. frozen_for
-- is 'declines' or 'dispute'; a frozen delegation pays nothing. declines counts consecutive declines. made_by is the person who created it,
-- NULL if unknown.
CREATE TABLE delegations (
    delegation_id         {{TEXT}} NOT NULL,
    owner                 {{TEXT}} NOT NULL,
    provider              TEXT     NOT NULL,
    payment_method_id     {{TEXT}} NOT NULL,
    currency              TEXT     NOT NULL,
    limit_cents           BIGINT   NOT NULL CHECK (limit_cents > 0),
    spent_cents           BIGINT   NOT NULL CHECK (spent_cents >= 0),
    reserved_cents        BIGINT   NOT NULL CHECK (reserved_cents >= 0),
    transactions          BIGINT   NOT NULL CHECK (transactions >= 0),
    max_transactions      BIGINT   NOT NULL CHECK (max_transactions >= 0),
    plan_id               TEXT     NOT NULL,
    api_key_id            TEXT     NOT NULL,
    merchant_account      TEXT     NOT NULL,
    allowed_recipients    TEXT     NOT NULL,
    created_at            BIGINT   NOT NULL,
    expires_at            BIGINT   NOT NULL,
    revoked_at            BIGINT   NOT NULL,
    last_used_at          BIGINT   NOT NULL,
    revoking              BOOLEAN  NOT NULL,
    owner_account         TEXT,
    signature             {{BYTES}},
    account_authorization TEXT,
    disable_at            BIGINT,
    paid_cents            BIGINT,
    beyond_cents          BIGINT,
    unclear_cents         BIGINT,
    readings              BIGINT,
    frozen_at             BIGINT,
    frozen_for            TEXT,
    declines              BIGINT,
    made_by               {{BYTES}},
    PRIMARY KEY (delegation_id),
    CHECK (spent_cents + reserved_cents <= limit_cents)
){{ROWID}};
CREATE INDEX delegations_owner ON delegations (owner, created_at, delegation_id);
CREATE INDEX delegations_method ON delegations (owner, payment_method_id);
CREATE INDEX delegations_expiry ON delegations (expires_at);
CREATE INDEX delegations_made_by ON delegations (made_by, expires_at) WHERE made_by IS NOT NULL;

CREATE TABLE delegation_transactions (
    delegation_id  {{TEXT}} NOT NULL,
    id             {{TEXT}} NOT NULL,
    order_id       {{TEXT}} NOT NULL,
    provider_id    TEXT     NOT NULL,
    cents          BIGINT   NOT NULL CHECK (cents >= 0),
    currency       TEXT     NOT NULL,
    status         TEXT     NOT NULL,
    failure_reason TEXT     NOT NULL,
    created_at     BIGINT   NOT NULL,
    PRIMARY KEY (delegation_id, id)
){{ROWID}};
CREATE UNIQUE INDEX delegation_transactions_order ON delegation_transactions (order_id);
CREATE INDEX delegation_transactions_created ON delegation_transactions (delegation_id, created_at, id);

-- Cards, and notes about wallets, whose id is the address. allowed_keys is a JSON array of key ids, '' for every key. made_by is the person
-- who enrolled the card, NULL if unknown.
CREATE TABLE payment_methods (
    owner        {{TEXT}} NOT NULL,
    id           {{TEXT}} NOT NULL,
    provider     TEXT     NOT NULL,
    brand        TEXT     NOT NULL,
    last4        TEXT     NOT NULL,
    exp_month    BIGINT   NOT NULL,
    exp_year     BIGINT   NOT NULL,
    alias        TEXT,
    allowed_keys TEXT     NOT NULL,
    created_at   BIGINT   NOT NULL,
    revoked_at   BIGINT   NOT NULL,
    expired_at   BIGINT,
    made_by      {{BYTES}},
    PRIMARY KEY (owner, id)
){{ROWID}};

-- Answers to calls that created something under an Idempotency-Key, written in the transaction that created it. scope is the SHA-256 of
-- caller, operation, path and key; body is the SHA-256 of the request. answer is sealed: it may hold a secret that is shown once.
CREATE TABLE idempotency_keys (
    scope      {{BYTES}} NOT NULL,
    body       {{BYTES}} NOT NULL,
    answer     {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (scope)
){{ROWID}};
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);

-- Rare work with one row for each object, which is due at a time. While held_until is in the future, the row belongs to holder, or, if that
-- is empty, to the call that wrote it. attempt grows with each claim.
CREATE TABLE jobs (
    kind       {{TEXT}}  NOT NULL,
    key        {{BYTES}} NOT NULL,
    due        BIGINT    NOT NULL,
    attempt    BIGINT    NOT NULL,
    holder     {{TEXT}}  NOT NULL,
    held_until BIGINT    NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX jobs_due ON jobs (due);

-- The last event of each principal. Writers number events under the lock of this row, so that numbers have no gap and no event appears
-- before one that was read. tail is the newest run of settlements while it is short, settled counts the settlements of all runs, and kept
-- is the first event that was not removed. NULL: none, 0 and all.
CREATE TABLE event_streams (
    principal {{TEXT}} NOT NULL,
    last      BIGINT   NOT NULL,
    settled   BIGINT,
    tail      {{BYTES}},
    kept      BIGINT,
    PRIMARY KEY (principal)
){{ROOM}}{{ROWID}};

-- The number of events of an object, for each principal that sees it. A settlement has one event and no row.
CREATE TABLE event_objects (
    principal {{TEXT}} NOT NULL,
    kind      {{TEXT}} NOT NULL,
    object_id {{TEXT}} NOT NULL,
    last      BIGINT   NOT NULL,
    PRIMARY KEY (principal, kind, object_id)
){{ROWID}};

-- Events that are not settlements. data is JSON, '' for an event that is derived from an entry of the ledger and built when it is read.
CREATE TABLE events (
    principal     {{TEXT}}  NOT NULL,
    seq           BIGINT    NOT NULL,
    event_id      {{BYTES}} NOT NULL,
    type          {{TEXT}}  NOT NULL,
    kind          TEXT      NOT NULL,
    object_id     TEXT      NOT NULL,
    object_seq    BIGINT    NOT NULL,
    created_at    BIGINT    NOT NULL,
    data          TEXT      NOT NULL,
    entry_account {{BYTES}},
    entry_seq     BIGINT    NOT NULL,
    PRIMARY KEY (principal, seq)
){{ROWID}};
CREATE INDEX events_type ON events (principal, type, seq);
CREATE INDEX events_created ON events (principal, created_at);

-- A run has up to 1,024 events of settlements of a stream, packed: their sequences, and the positions of their entries in the journal.
-- Other events may lie between first and last. events_before counts the events of earlier runs of the stream, first_at and last_at are the
-- earliest and latest time of its own.
CREATE TABLE event_runs (
    principal     {{TEXT}}  NOT NULL,
    first         BIGINT    NOT NULL,
    last          BIGINT    NOT NULL,
    events_before BIGINT    NOT NULL,
    events        BIGINT    NOT NULL,
    first_at      BIGINT    NOT NULL,
    last_at       BIGINT    NOT NULL,
    packed        {{BYTES}} NOT NULL,
    PRIMARY KEY (principal, first)
);
CREATE UNIQUE INDEX event_runs_number ON event_runs (principal, events_before);
CREATE INDEX event_runs_time ON event_runs (principal, last_at, first_at, events_before, events, first);

-- types is JSON, '' for every type. seq is the last event for which deliveries exist. failing_since is the first failure after the last
-- success. secret and old_secret are sealed. credential_id is the credential whose mail address gets the events, NULL for a webhook with a
-- url. made_by is the person who chose the address, NULL if unknown.
CREATE TABLE webhooks (
    webhook_id       {{TEXT}}  NOT NULL,
    principal        {{TEXT}}  NOT NULL,
    url              TEXT      NOT NULL,
    types            TEXT      NOT NULL,
    description      TEXT      NOT NULL,
    status           TEXT      NOT NULL,
    secret           {{BYTES}} NOT NULL,
    old_secret       {{BYTES}},
    old_secret_until BIGINT    NOT NULL,
    seq              BIGINT    NOT NULL,
    failing_since    BIGINT    NOT NULL,
    created_at       BIGINT    NOT NULL,
    updated_at       BIGINT    NOT NULL,
    credential_id    {{BYTES}},
    made_by          {{BYTES}},
    PRIMARY KEY (webhook_id)
){{ROWID}};
CREATE INDEX webhooks_principal ON webhooks (principal, created_at, webhook_id);

-- seq is the number of the event, 0 for a test, whose body is stored here. A pending delivery is sent at try_at; while one process sends
-- it, another one may take it over at try_at. It was first sent at first_at.
CREATE TABLE webhook_deliveries (
    webhook_id  {{TEXT}}  NOT NULL,
    delivery_id {{TEXT}}  NOT NULL,
    seq         BIGINT    NOT NULL,
    event_id    {{BYTES}} NOT NULL,
    type        TEXT      NOT NULL,
    object      {{TEXT}}  NOT NULL,
    body        TEXT      NOT NULL,
    status      {{TEXT}}  NOT NULL,
    attempts    BIGINT    NOT NULL,
    first_at    BIGINT    NOT NULL,
    try_at      BIGINT    NOT NULL,
    last_at     BIGINT    NOT NULL,
    last_status BIGINT    NOT NULL,
    last_error  TEXT      NOT NULL,
    created_at  BIGINT    NOT NULL,
    done_at     BIGINT    NOT NULL,
    PRIMARY KEY (webhook_id, delivery_id)
){{ROWID}};
CREATE UNIQUE INDEX webhook_deliveries_event ON webhook_deliveries (webhook_id, seq) WHERE seq > 0;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, try_at, seq) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_object ON webhook_deliveries (webhook_id, object, seq) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_created ON webhook_deliveries (webhook_id, created_at, delivery_id);
CREATE INDEX webhook_deliveries_done ON webhook_deliveries (done_at) WHERE status <> 'pending';

-- Settlements, counted from the journal up to the cursor 'usage'. hour and day are their first microsecond (UTC). Sums of credits are kept
-- in two parts, the sum of the upper and of the lower 32 bits, as they may exceed a BIGINT. agent_id is '' for none, owner '' for a plan
-- without a record. took_0 to took_11 count settlements by the time from hold to settlement.
CREATE TABLE usage_hours (
    plan_id      {{TEXT}} NOT NULL,
    hour         BIGINT   NOT NULL,
    agent_id     {{TEXT}} NOT NULL,
    owner        {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    took_0       BIGINT   NOT NULL,
    took_1       BIGINT   NOT NULL,
    took_2       BIGINT   NOT NULL,
    took_3       BIGINT   NOT NULL,
    took_4       BIGINT   NOT NULL,
    took_5       BIGINT   NOT NULL,
    took_6       BIGINT   NOT NULL,
    took_7       BIGINT   NOT NULL,
    took_8       BIGINT   NOT NULL,
    took_9       BIGINT   NOT NULL,
    took_10      BIGINT   NOT NULL,
    took_11      BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, hour, agent_id)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_hours_owner ON usage_hours (owner, hour);

-- The same by subscriber and day.
CREATE TABLE usage_days (
    plan_id      {{TEXT}} NOT NULL,
    day          BIGINT   NOT NULL,
    subscriber   {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    last_at      BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, day, subscriber)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_days_subscriber ON usage_days (subscriber, day);

-- Settlements with labels, by day and label. upstream, route, and model are empty if the label is not set. A plan has at most 101 rows
-- for each day.
CREATE TABLE usage_labels (
    plan_id      {{TEXT}} NOT NULL,
    day          BIGINT   NOT NULL,
    upstream     {{TEXT}} NOT NULL,
    route        {{TEXT}} NOT NULL,
    model        {{TEXT}} NOT NULL,
    owner        {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, day, upstream, route, model)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_labels_owner ON usage_labels (owner, day);

-- Settlements with labels, by subscriber. Subscribers do not see the upstream.
CREATE TABLE usage_buyer_labels (
    plan_id      {{TEXT}} NOT NULL,
    day          BIGINT   NOT NULL,
    subscriber   {{TEXT}} NOT NULL,
    route        {{TEXT}} NOT NULL,
    model        {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, day, subscriber, route, model)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_buyer_labels_subscriber ON usage_buyer_labels (subscriber, day);

-- The part of usage_hours for settlements whose requests were removed, so that it can be counted again: the journal no longer names their
-- agents. restored is 0 while a rebuild has still to add the row.
CREATE TABLE usage_kept (
    plan_id      {{TEXT}} NOT NULL,
    hour         BIGINT   NOT NULL,
    agent_id     {{TEXT}} NOT NULL,
    owner        {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    took_0       BIGINT   NOT NULL,
    took_1       BIGINT   NOT NULL,
    took_2       BIGINT   NOT NULL,
    took_3       BIGINT   NOT NULL,
    took_4       BIGINT   NOT NULL,
    took_5       BIGINT   NOT NULL,
    took_6       BIGINT   NOT NULL,
    took_7       BIGINT   NOT NULL,
    took_8       BIGINT   NOT NULL,
    took_9       BIGINT   NOT NULL,
    took_10      BIGINT   NOT NULL,
    took_11      BIGINT   NOT NULL,
    restored     BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, hour, agent_id)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_kept_open ON usage_kept (plan_id, hour, agent_id) WHERE restored = 0;

-- Payments for orders, by the hour in which the orders were created. amount is a decimal number of base units, which may exceed a BIGINT.
CREATE TABLE revenue_hours (
    plan_id  {{TEXT}} NOT NULL,
    hour     BIGINT   NOT NULL,
    currency {{TEXT}} NOT NULL,
    owner    {{TEXT}} NOT NULL,
    orders   BIGINT   NOT NULL,
    amount   {{TEXT}} NOT NULL,
    PRIMARY KEY (plan_id, hour, currency)
){{ROOM}}{{ROWID}};
CREATE INDEX revenue_hours_owner ON revenue_hours (owner, hour);

-- Refused verify and settle calls by the hour, which is its first microsecond (UTC). agent_id is '' for none, reason is the word of the
-- answer.
CREATE TABLE refusal_hours (
    plan_id  {{TEXT}} NOT NULL,
    hour     BIGINT   NOT NULL,
    agent_id {{TEXT}} NOT NULL,
    reason   {{TEXT}} NOT NULL,
    owner    {{TEXT}} NOT NULL,
    refused  BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, hour, agent_id, reason)
){{ROOM}}{{ROWID}};
CREATE INDEX refusal_hours_owner ON refusal_hours (owner, hour);

-- Persons. A time of 0 is none.
CREATE TABLE users (
    user_id     {{BYTES}} NOT NULL,
    name        TEXT      NOT NULL,
    is_operator BOOLEAN   NOT NULL,
    created_at  BIGINT    NOT NULL,
    disabled_at BIGINT    NOT NULL,
    PRIMARY KEY (user_id)
){{ROWID}};

-- The credentials with which a person signs in. kind is password, passkey, recovery, mail, oidc or wallet; subject is unique within a kind:
-- the login name, the id of the passkey, the hash of the code, the address, "issuer subject". secret is a hash or a public key.
CREATE TABLE credentials (
    credential_id {{BYTES}} NOT NULL,
    user_id       {{BYTES}} NOT NULL,
    kind          {{TEXT}}  NOT NULL,
    subject       {{TEXT}}  NOT NULL,
    name          TEXT      NOT NULL,
    secret        {{BYTES}} NOT NULL,
    created_at    BIGINT    NOT NULL,
    used_at       BIGINT    NOT NULL,
    PRIMARY KEY (credential_id)
){{ROWID}};
CREATE UNIQUE INDEX credentials_subject ON credentials (kind, subject);
CREATE INDEX credentials_user ON credentials (user_id, created_at);

-- The roles of persons in a workspace, which is a row of principals. spend_limit_cents is the most that the member may have the workspace
-- pay in a month, NULL for no limit. A session that began at sessions_from or earlier has no access to the workspace; NULL: all sessions
-- have.
CREATE TABLE memberships (
    workspace         {{TEXT}}  NOT NULL,
    user_id           {{BYTES}} NOT NULL,
    role              TEXT      NOT NULL,
    created_at        BIGINT    NOT NULL,
    spend_limit_cents BIGINT,
    sessions_from     BIGINT,
    PRIMARY KEY (workspace, user_id)
){{ROWID}};
CREATE INDEX memberships_user ON memberships (user_id, created_at);
CREATE INDEX memberships_workspace ON memberships (workspace, created_at, user_id);

-- Links that work once: hash is the SHA-256 of the secret in the link. kind is join (a workspace), sign_up, operator (the first one) or
-- recover. workspace is empty, and user_id NULL, where the kind has none. made_by is the person who created the link.
CREATE TABLE links (
    hash       {{BYTES}} NOT NULL,
    kind       TEXT      NOT NULL,
    workspace  {{TEXT}}  NOT NULL,
    role       TEXT      NOT NULL,
    user_id    {{BYTES}},
    made_by    {{BYTES}},
    note       TEXT      NOT NULL,
    created_at BIGINT    NOT NULL,
    ends_at    BIGINT    NOT NULL,
    used_at    BIGINT    NOT NULL,
    used_by    {{BYTES}},
    PRIMARY KEY (hash)
){{ROWID}};
CREATE INDEX links_workspace ON links (workspace, created_at);
CREATE INDEX links_end ON links (ends_at);

-- Codes that were sent by mail and wait to be typed. code_id is the SHA-256 of a secret of the page that asks for the code, mail is the
-- SHA-256 of the address, and code is the SHA-256 of both the secret and the code, so that a reader of this table cannot find the code.
CREATE TABLE mail_codes (
    code_id {{BYTES}} NOT NULL,
    mail    {{BYTES}} NOT NULL,
    code    {{BYTES}} NOT NULL,
    tries   BIGINT    NOT NULL,
    ends_at BIGINT    NOT NULL,
    PRIMARY KEY (code_id)
){{ROWID}};
CREATE INDEX mail_codes_mail ON mail_codes (mail, ends_at);
CREATE INDEX mail_codes_end ON mail_codes (ends_at);

-- Addresses to which no codes are sent when a stranger asks. mail is the SHA-256 of the address.
CREATE TABLE mail_stops (
    mail       {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (mail)
){{ROWID}};

-- Sessions of browsers in which a person signed in. token is a hash of the cookie. session_id names the session on pages. The columns from
-- user_id on are NULL or 0 for the session of an API key.
CREATE TABLE browser_sessions (
    token      {{TEXT}}  NOT NULL,
    data       {{BYTES}} NOT NULL,
    expires_at BIGINT    NOT NULL,
    user_id    {{BYTES}},
    session_id {{TEXT}},
    agent      TEXT,
    since      BIGINT,
    used_at    BIGINT,
    proof      TEXT,
    proved_at  BIGINT,
    PRIMARY KEY (token)
){{ROWID}};
CREATE INDEX browser_sessions_end ON browser_sessions (expires_at);
CREATE INDEX browser_sessions_user ON browser_sessions (user_id, since, token) WHERE user_id IS NOT NULL;

-- Decisions of persons on forms. form is the SHA-256 of the ticket of the form; answer is where the browser was sent, sealed, and empty
-- until that is known.
CREATE TABLE browser_answers (
    form       {{BYTES}} NOT NULL,
    answer     {{BYTES}} NOT NULL,
    expires_at BIGINT    NOT NULL,
    PRIMARY KEY (form)
){{ROWID}};
CREATE INDEX browser_answers_end ON browser_answers (expires_at);

-- The workspaces in which the session of a person was used, and the time of its last use, by the minute.
CREATE TABLE session_uses (
    session_id {{TEXT}} NOT NULL,
    workspace  {{TEXT}} NOT NULL,
    used_at    BIGINT   NOT NULL,
    PRIMARY KEY (session_id, workspace)
){{ROWID}};
CREATE INDEX session_uses_used ON session_uses (used_at);

-- Used nonces of sign-ins by wallets. A row is needed as long as the nonce would be accepted.
CREATE TABLE wallet_nonces (
    nonce   {{BYTES}} NOT NULL,
    ends_at BIGINT    NOT NULL,
    PRIMARY KEY (nonce)
){{ROWID}};
CREATE INDEX wallet_nonces_end ON wallet_nonces (ends_at);

-- Acts, in a chain of hashes for each workspace; the operator's chain has the empty workspace. actor_kind is user, key or local. detail is
-- JSON. source is a random text, a space and the address; it is dropped after 90 days, and source_hash is in the chain.
CREATE TABLE audit_log (
    workspace   {{TEXT}}  NOT NULL,
    number      BIGINT    NOT NULL,
    at          BIGINT    NOT NULL,
    actor_kind  TEXT      NOT NULL,
    actor       TEXT      NOT NULL,
    act         TEXT      NOT NULL,
    object      TEXT      NOT NULL,
    detail      TEXT      NOT NULL,
    source      TEXT,
    source_hash {{BYTES}} NOT NULL,
    hash        {{BYTES}} NOT NULL,
    PRIMARY KEY (workspace, number)
){{ROWID}};
CREATE INDEX audit_log_source ON audit_log (at) WHERE source IS NOT NULL;
CREATE INDEX audit_log_time ON audit_log (workspace, at, number);
CREATE INDEX audit_log_act ON audit_log (workspace, act, at, number);

CREATE TABLE audit_heads (
    workspace {{TEXT}}  NOT NULL,
    last      BIGINT    NOT NULL,
    hash      {{BYTES}} NOT NULL,
    PRIMARY KEY (workspace)
){{ROWID}};

-- Registered clients. secret is the SHA-256 of the client secret, empty for none; grants are words separated by spaces; details is JSON
-- that is only shown. used_at moves with every use, and unused clients are removed.
CREATE TABLE oauth_clients (
    client_id   {{TEXT}}  NOT NULL,
    name        TEXT      NOT NULL,
    auth_method TEXT      NOT NULL,
    secret      {{BYTES}} NOT NULL,
    grants      TEXT      NOT NULL,
    scope       TEXT      NOT NULL,
    details     TEXT      NOT NULL,
    created_at  BIGINT    NOT NULL,
    used_at     BIGINT    NOT NULL,
    PRIMARY KEY (client_id)
){{ROWID}};
CREATE INDEX oauth_clients_used ON oauth_clients (used_at);

-- The redirect addresses of each client. A shared client, which stands for an agent, has the addresses of many programs, each with its
-- name. granted says whether a person has approved the program at this address. source is the network that registered it, so that one
-- network cannot use up the room for all.
CREATE TABLE oauth_redirects (
    client_id    {{TEXT}} NOT NULL,
    redirect_uri {{TEXT}} NOT NULL,
    name         TEXT     NOT NULL,
    shared       BOOLEAN  NOT NULL,
    used_at      BIGINT   NOT NULL,
    granted      BOOLEAN  NOT NULL,
    source       {{TEXT}},
    PRIMARY KEY (client_id, redirect_uri)
){{ROWID}};
CREATE INDEX oauth_redirects_used ON oauth_redirects (used_at);
CREATE INDEX oauth_redirects_unused ON oauth_redirects (used_at) WHERE NOT granted;
CREATE INDEX oauth_redirects_source ON oauth_redirects (source, used_at) WHERE NOT granted;

-- The consent of a person: everything that is issued because of it is one family and ends with it. digest is a hash of what the person saw
-- of the client; life is in seconds, and ends_at is the end of its code until the code is exchanged. revoking is true while something that
-- was issued may still have to end. parent is the API key of the session in which the person consented, NULL for none; rights are those of
-- the API key that the consent gives. user_id is the person under whose membership it stands, NULL for none.
CREATE TABLE oauth_grants (
    grant_id         {{BYTES}} NOT NULL,
    client_id        {{TEXT}}  NOT NULL,
    client_name      TEXT      NOT NULL,
    digest           {{BYTES}} NOT NULL,
    owner            {{TEXT}}  NOT NULL,
    kind             TEXT      NOT NULL,
    scope            TEXT      NOT NULL,
    resource         TEXT      NOT NULL,
    nonce            TEXT      NOT NULL,
    plan_id          TEXT      NOT NULL,
    agent_id         TEXT      NOT NULL,
    delegation_id    TEXT      NOT NULL,
    redemption_limit BIGINT,
    order_limit      BIGINT,
    refreshes        BOOLEAN   NOT NULL,
    life             BIGINT    NOT NULL,
    created_at       BIGINT    NOT NULL,
    ends_at          BIGINT    NOT NULL,
    revoked_at       BIGINT    NOT NULL,
    revoking         BOOLEAN   NOT NULL,
    parent           {{BYTES}},
    rights           TEXT,
    user_id          {{BYTES}},
    PRIMARY KEY (grant_id)
){{ROWID}};
CREATE INDEX oauth_grants_end ON oauth_grants (ends_at);
CREATE INDEX oauth_grants_owner ON oauth_grants (owner, created_at);
CREATE INDEX oauth_grants_parent ON oauth_grants (parent) WHERE parent IS NOT NULL;
CREATE INDEX oauth_grants_user ON oauth_grants (user_id, owner) WHERE user_id IS NOT NULL;

-- hash is the SHA-256 of a code, here and below. A used code is kept as long as what it was exchanged for.
CREATE TABLE oauth_codes (
    hash         {{BYTES}} NOT NULL,
    grant_id     {{BYTES}} NOT NULL,
    redirect_uri TEXT      NOT NULL,
    challenge    TEXT      NOT NULL,
    expires_at   BIGINT    NOT NULL,
    used_at      BIGINT    NOT NULL,
    PRIMARY KEY (hash)
){{ROWID}};
CREATE INDEX oauth_codes_grant ON oauth_codes (grant_id);

-- successor is the next refresh token, sealed with a key that only the used token gives; NULL while the token is unused.
CREATE TABLE oauth_refresh_tokens (
    hash       {{BYTES}} NOT NULL,
    grant_id   {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    used_at    BIGINT    NOT NULL,
    successor  {{BYTES}},
    PRIMARY KEY (hash)
){{ROWID}};
CREATE INDEX oauth_refresh_tokens_grant ON oauth_refresh_tokens (grant_id);

-- Permissions and API keys that were created from a grant, by their id.
CREATE TABLE oauth_access (
    id         {{BYTES}} NOT NULL,
    grant_id   {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (id)
){{ROWID}};
CREATE INDEX oauth_access_grant ON oauth_access (grant_id, created_at);

-- Devices that wait for a person. user_hash is the hash of the code that the person types. The device asked last at poll_at and waits
-- poll_secs in between. grant_id is empty until a person decided; denied says that a person refused. counted_source is the network of the
-- device, whose waiting devices are counted together.
CREATE TABLE oauth_devices (
    hash           {{BYTES}} NOT NULL,
    user_hash      {{BYTES}} NOT NULL,
    client_id      {{TEXT}}  NOT NULL,
    scope          TEXT      NOT NULL,
    resource       TEXT      NOT NULL,
    plan_id        TEXT      NOT NULL,
    agent_id       TEXT      NOT NULL,
    source         TEXT      NOT NULL,
    grant_id       {{BYTES}} NOT NULL,
    denied         BOOLEAN   NOT NULL,
    created_at     BIGINT    NOT NULL,
    expires_at     BIGINT    NOT NULL,
    poll_at        BIGINT    NOT NULL,
    poll_secs      BIGINT    NOT NULL,
    used_at        BIGINT    NOT NULL,
    counted_source {{TEXT}},
    PRIMARY KEY (hash)
){{ROWID}};
CREATE UNIQUE INDEX oauth_devices_user ON oauth_devices (user_hash);
CREATE INDEX oauth_devices_end ON oauth_devices (expires_at);
CREATE INDEX oauth_devices_source ON oauth_devices (counted_source, expires_at);

-- Wrong device codes that a person typed since a time.
CREATE TABLE oauth_guesses (
    owner {{TEXT}} NOT NULL,
    wrong BIGINT   NOT NULL,
    since BIGINT   NOT NULL,
    PRIMARY KEY (owner)
){{ROWID}};
CREATE INDEX oauth_guesses_since ON oauth_guesses (since);

-- Token authorizations (EIP-3009) that pay orders: each pays one order and is written in the transaction that records it. nonce is the
-- payer's nonce at the token. value is in base units, the times are Unix seconds, signature is r, s and v.
CREATE TABLE authorizations (
    chain_id     BIGINT    NOT NULL,
    asset        {{TEXT}}  NOT NULL,
    payer        {{TEXT}}  NOT NULL,
    nonce        {{BYTES}} NOT NULL,
    order_id     {{TEXT}}  NOT NULL,
    receiver     {{TEXT}}  NOT NULL,
    value        TEXT      NOT NULL,
    valid_after  BIGINT    NOT NULL,
    valid_before BIGINT    NOT NULL,
    signature    {{BYTES}} NOT NULL,
    created_at   BIGINT    NOT NULL,
    PRIMARY KEY (chain_id, asset, payer, nonce)
){{ROWID}};
CREATE UNIQUE INDEX authorizations_order ON authorizations (order_id);

-- Payments of scheme exact that other servers verified or settled here. payment_id is the order of its authorization, server the caller,
-- content the SHA-256 of what was asked for. opened says that a verify came first; answer is the answer to the settle. The authorization
-- ends at ends_at.
CREATE TABLE exact_payments (
    payment_id {{TEXT}}  NOT NULL,
    server     {{TEXT}}  NOT NULL,
    content    {{BYTES}} NOT NULL,
    opened     BOOLEAN   NOT NULL,
    answer     {{BYTES}},
    ends_at    BIGINT,
    PRIMARY KEY (payment_id)
){{ROWID}};
CREATE INDEX exact_payments_end ON exact_payments (ends_at);

-- Names that wallets gave to their purchases. content is the SHA-256 of the purchase and its price.
CREATE TABLE sale_identifiers (
    subscriber {{TEXT}}  NOT NULL,
    identifier {{TEXT}}  NOT NULL,
    content    {{BYTES}} NOT NULL,
    order_id   {{TEXT}}  NOT NULL,
    PRIMARY KEY (subscriber, identifier)
){{ROWID}};

-- Receipts of purchases as they were first answered.
CREATE TABLE sale_receipts (
    order_id {{TEXT}}  NOT NULL,
    receipt  {{BYTES}} NOT NULL,
    PRIMARY KEY (order_id)
){{ROWID}};

-- The tables of the crypto rail. The ledger of credits does not need them, and they are never partitioned.

-- A user operation. nonce_key is its nonce key, op_hash its userOpHash once it is signed. untold is true until checkout has the result of
-- its order. evidence is the block that proves its state, NULL while there is none. data is JSON. order_account is the account of the order
-- that the operation pays or voids, NULL for none.
CREATE TABLE chain_ops (
    op_id         {{TEXT}}  NOT NULL,
    kind          TEXT      NOT NULL,
    state         {{TEXT}}  NOT NULL,
    version       BIGINT    NOT NULL,
    nonce_key     {{BYTES}} NOT NULL,
    op_hash       {{BYTES}},
    untold        BOOLEAN   NOT NULL,
    evidence      BIGINT,
    updated_at    BIGINT    NOT NULL,
    data          TEXT      NOT NULL,
    order_account {{BYTES}},
    PRIMARY KEY (op_id)
){{ROWID}};
CREATE UNIQUE INDEX chain_ops_nonce ON chain_ops (nonce_key);
CREATE UNIQUE INDEX chain_ops_hash ON chain_ops (op_hash) WHERE op_hash IS NOT NULL;
CREATE INDEX chain_ops_state ON chain_ops (state, updated_at, op_id);
CREATE INDEX chain_ops_untold ON chain_ops (updated_at, op_id) WHERE untold;
CREATE INDEX chain_ops_evidence ON chain_ops (evidence, op_id) WHERE evidence IS NOT NULL;

-- A transaction of a relayer, stored before it is sent. raw are its signed bytes, data is JSON.
CREATE TABLE chain_txs (
    tx_hash    {{BYTES}} NOT NULL,
    relayer    {{TEXT}}  NOT NULL,
    nonce      BIGINT    NOT NULL,
    state      {{TEXT}}  NOT NULL,
    created_at BIGINT    NOT NULL,
    raw        {{BYTES}} NOT NULL,
    data       TEXT      NOT NULL,
    PRIMARY KEY (tx_hash)
){{ROWID}};
CREATE INDEX chain_txs_nonce ON chain_txs (relayer, nonce);
CREATE INDEX chain_txs_pending ON chain_txs (relayer, nonce) WHERE state = 'pending';

-- The holder of a task, '' for none. fence grows with each holder.
CREATE TABLE chain_leases (
    name       {{TEXT}} NOT NULL,
    holder     TEXT     NOT NULL,
    fence      BIGINT   NOT NULL,
    held_until BIGINT   NOT NULL,
    PRIMARY KEY (name)
){{ROWID}};

-- How far the chain has been read. base is a block so far below that a chain without it is another chain.
CREATE TABLE chain_cursor (
    reader     {{TEXT}}  NOT NULL,
    genesis    {{BYTES}} NOT NULL,
    block      BIGINT    NOT NULL,
    block_hash {{BYTES}} NOT NULL,
    base       BIGINT    NOT NULL,
    base_hash  {{BYTES}} NOT NULL,
    PRIMARY KEY (reader)
){{ROWID}};

-- Events of our accounts that no record explains. data is JSON.
CREATE TABLE chain_orphans (
    block_hash  {{BYTES}} NOT NULL,
    log_index   BIGINT    NOT NULL,
    block       BIGINT    NOT NULL,
    data        TEXT      NOT NULL,
    resolved_at BIGINT,
    resolution  TEXT,
    PRIMARY KEY (block_hash, log_index)
){{ROWID}};

CREATE TABLE chain_delegations (
    hash          {{BYTES}} NOT NULL,
    delegation_id {{TEXT}}  NOT NULL,
    PRIMARY KEY (hash)
){{ROWID}};

-- Accounts of the service on the chain: role is service, relayer or mirror, number counts the accounts of a role from 0. Only the master
-- key opens sealed_key.
CREATE TABLE chain_keys (
    role       {{TEXT}}  NOT NULL,
    number     BIGINT    NOT NULL,
    address    {{TEXT}}  NOT NULL,
    sealed_key {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (role, number)
){{ROWID}};
CREATE UNIQUE INDEX chain_keys_address ON chain_keys (address);

-- A period of published burns. credits is the decimal sum of its leaves. state is closed, sent, anchored or final; raw is the transaction
-- that anchors it, stored before it is sent.
CREATE TABLE mirror_periods (
    period     BIGINT    NOT NULL,
    root       {{BYTES}} NOT NULL,
    leaves     BIGINT    NOT NULL,
    credits    TEXT      NOT NULL,
    state      TEXT      NOT NULL,
    tx_hash    {{BYTES}},
    raw        {{BYTES}},
    nonce      BIGINT    NOT NULL,
    sent_block BIGINT    NOT NULL,
    block      BIGINT    NOT NULL,
    block_hash {{BYTES}},
    PRIMARY KEY (period)
);
CREATE INDEX mirror_periods_open ON mirror_periods (period) WHERE state <> 'final';

CREATE TABLE mirror_leaves (
    period     BIGINT    NOT NULL,
    leaf_index BIGINT    NOT NULL,
    commitment {{BYTES}} NOT NULL,
    plan_id    {{TEXT}}  NOT NULL,
    holder     {{TEXT}}  NOT NULL,
    request    {{BYTES}} NOT NULL,
    credits    BIGINT    NOT NULL,
    PRIMARY KEY (period, leaf_index)
);
CREATE UNIQUE INDEX mirror_leaves_commitment ON mirror_leaves (commitment);

-- The tree above the leaves, so that a proof reads one node for each level. Level 1 has the parents of leaves.
CREATE TABLE mirror_nodes (
    period BIGINT    NOT NULL,
    level  BIGINT    NOT NULL,
    node   BIGINT    NOT NULL,
    hash   {{BYTES}} NOT NULL,
    PRIMARY KEY (period, level, node)
){{ROWID}};

-- The tables of the card rail.

-- The customer of a principal at the processor. row_id is the idempotency key with which the customer is created.
CREATE TABLE card_customers (
    owner       {{TEXT}} NOT NULL,
    row_id      {{TEXT}} NOT NULL,
    customer_id {{TEXT}},
    created_at  BIGINT   NOT NULL,
    PRIMARY KEY (owner)
){{ROWID}};
CREATE UNIQUE INDEX card_customers_id ON card_customers (customer_id) WHERE customer_id IS NOT NULL;

-- Enrolments of cards, which also count for the limit of T84. source is a hash of the address that asked. method_id is the record of the
-- enrolled card, NULL before. made_by is the person who enrolls it, NULL if unknown.
CREATE TABLE card_setups (
    setup_id   {{TEXT}} NOT NULL,
    owner      {{TEXT}} NOT NULL,
    source     {{TEXT}} NOT NULL,
    state      TEXT     NOT NULL,
    session_id {{TEXT}},
    intent_id  {{TEXT}},
    method_id  {{TEXT}},
    failures   BIGINT   NOT NULL,
    created_at BIGINT   NOT NULL,
    expires_at BIGINT   NOT NULL,
    made_by    {{BYTES}},
    PRIMARY KEY (setup_id)
){{ROWID}};
CREATE INDEX card_setups_owner ON card_setups (owner, created_at);
CREATE INDEX card_setups_source ON card_setups (source, created_at);
CREATE INDEX card_setups_created ON card_setups (created_at);
CREATE UNIQUE INDEX card_setups_session ON card_setups (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX card_setups_intent ON card_setups (intent_id) WHERE intent_id IS NOT NULL;

-- The payment method behind an enrolled card: stripe_id is the one that is charged now, while method_id, the id of the record in
-- payment_methods, never changes. fingerprint is NULL once the card was removed.
CREATE TABLE card_methods (
    owner       {{TEXT}} NOT NULL,
    method_id   {{TEXT}} NOT NULL,
    stripe_id   {{TEXT}} NOT NULL,
    customer_id {{TEXT}} NOT NULL,
    fingerprint {{TEXT}},
    checked_at  BIGINT   NOT NULL,
    PRIMARY KEY (owner, method_id)
){{ROWID}};
CREATE INDEX card_methods_id ON card_methods (method_id);
CREATE UNIQUE INDEX card_methods_stripe ON card_methods (stripe_id);
CREATE UNIQUE INDEX card_methods_same ON card_methods (owner, fingerprint) WHERE fingerprint IS NOT NULL;

-- The payment of an order, under its id. seller owns the plan, payer buys. version counts the writes. customer_id, method_id and
-- delegation_id are NULL when a person pays. undecided: the result has not reached its order. data is JSON.
CREATE TABLE card_payments (
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    seller        {{TEXT}}  NOT NULL,
    payer         {{TEXT}}  NOT NULL,
    state         TEXT      NOT NULL,
    version       BIGINT    NOT NULL,
    attempt       BIGINT    NOT NULL,
    cents         BIGINT    NOT NULL CHECK (cents > 0),
    currency      TEXT      NOT NULL,
    customer_id   {{TEXT}},
    method_id     {{TEXT}},
    delegation_id {{TEXT}},
    session_id    {{TEXT}},
    intent_id     {{TEXT}},
    charge_id     {{TEXT}},
    undecided     BOOLEAN   NOT NULL,
    created_at    BIGINT    NOT NULL,
    updated_at    BIGINT    NOT NULL,
    paid_at       BIGINT    NOT NULL,
    data          TEXT      NOT NULL,
    PRIMARY KEY (order_id)
){{ROWID}};
CREATE UNIQUE INDEX card_payments_session ON card_payments (session_id) WHERE session_id IS NOT NULL;
CREATE UNIQUE INDEX card_payments_intent ON card_payments (intent_id) WHERE intent_id IS NOT NULL;
CREATE INDEX card_payments_failed ON card_payments (payer, created_at) WHERE state = 'failed';

-- Requests that change something at the processor, each stored before it is sent. call_key is its idempotency key, and params are the exact
-- bytes; they are emptied once the answer is known. status is 0 until then.
CREATE TABLE card_calls (
    call_key    {{TEXT}} NOT NULL,
    subject     {{TEXT}} NOT NULL,
    path        TEXT     NOT NULL,
    params      TEXT     NOT NULL,
    status      BIGINT   NOT NULL,
    object_id   TEXT     NOT NULL,
    created_at  BIGINT   NOT NULL,
    answered_at BIGINT   NOT NULL,
    PRIMARY KEY (call_key)
){{ROWID}};
CREATE INDEX card_calls_answered ON card_calls (answered_at);

-- Money that goes back. origin is 'seller' (refund_id is the idempotency key), 'processor', or 'rejected' for money that bought nothing.
-- stripe_id is NULL until the processor has created it.
CREATE TABLE card_refunds (
    refund_id     {{TEXT}}  NOT NULL,
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    origin        TEXT      NOT NULL,
    state         TEXT      NOT NULL,
    cents         BIGINT    NOT NULL CHECK (cents > 0),
    intent_id     {{TEXT}}  NOT NULL,
    stripe_id     {{TEXT}},
    reason        TEXT      NOT NULL,
    created_at    BIGINT    NOT NULL,
    updated_at    BIGINT    NOT NULL,
    PRIMARY KEY (refund_id)
){{ROWID}};
CREATE INDEX card_refunds_order ON card_refunds (order_id);
CREATE UNIQUE INDEX card_refunds_stripe ON card_refunds (stripe_id) WHERE stripe_id IS NOT NULL;

-- The fees of the payments that a builder began to refund on a day, in cents. A builder has one row, for the last such day.
CREATE TABLE card_refund_fees (
    seller {{TEXT}} NOT NULL,
    day    BIGINT   NOT NULL,
    cents  BIGINT   NOT NULL CHECK (cents >= 0),
    PRIMARY KEY (seller)
){{ROWID}};

-- Disputes and inquiries. withdrawn: the money has left the account of the operator and has not come back.
CREATE TABLE card_disputes (
    dispute_id    {{TEXT}}  NOT NULL,
    order_id      {{TEXT}}  NOT NULL,
    order_account {{BYTES}} NOT NULL,
    state         TEXT      NOT NULL,
    cents         BIGINT    NOT NULL,
    reason        TEXT      NOT NULL,
    withdrawn     BOOLEAN   NOT NULL,
    due_at        BIGINT    NOT NULL,
    created_at    BIGINT    NOT NULL,
    updated_at    BIGINT    NOT NULL,
    PRIMARY KEY (dispute_id)
){{ROWID}};
CREATE INDEX card_disputes_order ON card_disputes (order_id);

-- Changes of the balance of the operator at the processor, one row for each balance transaction. Rows never change.
CREATE TABLE card_moves (
    move_id  {{TEXT}} NOT NULL,
    order_id {{TEXT}} NOT NULL,
    kind     TEXT     NOT NULL,
    cents    BIGINT   NOT NULL,
    fee      BIGINT   NOT NULL,
    currency TEXT     NOT NULL,
    at       BIGINT   NOT NULL,
    PRIMARY KEY (move_id)
){{ROWID}};
CREATE INDEX card_moves_order ON card_moves (order_id);
CREATE INDEX card_moves_at ON card_moves (at);

-- Events of the processor that were accepted, so that each is processed once. They are kept as long as the processor lists them.
CREATE TABLE card_events (
    event_id   {{TEXT}} NOT NULL,
    type       TEXT     NOT NULL,
    object_id  TEXT     NOT NULL,
    created_at BIGINT   NOT NULL,
    PRIMARY KEY (event_id)
){{ROWID}};
CREATE INDEX card_events_created ON card_events (created_at);

-- Money at the processor that no order explains (I13). order_id, plan_id and subscriber are claims of the object. resolved_at is 0 until an
-- operator has resolved it; resolution is 'granted', 'refunding', 'refunded' or 'settled', NULL before. refunded_cents were refunded,
-- disputed_cents were withdrawn by disputes and not returned, both as read from the processor at read_at. delegation_id is the delegation
-- that its metadata names, and counted_cents is the amount that it counts against that delegation.
CREATE TABLE card_orphans (
    object_id      {{TEXT}} NOT NULL,
    order_id       TEXT     NOT NULL,
    cents          BIGINT   NOT NULL,
    currency       TEXT     NOT NULL,
    reason         TEXT     NOT NULL,
    seen_at        BIGINT   NOT NULL,
    resolved_at    BIGINT   NOT NULL,
    plan_id        {{TEXT}},
    subscriber     {{TEXT}},
    resolution     TEXT,
    refunded_cents BIGINT,
    disputed_cents BIGINT,
    read_at        BIGINT,
    delegation_id  {{TEXT}},
    counted_cents  BIGINT,
    PRIMARY KEY (object_id)
){{ROWID}};

-- Payments of the operator to sellers by other means. month is YYYY-MM.
CREATE TABLE card_payouts (
    payout_id {{TEXT}} NOT NULL,
    seller    {{TEXT}} NOT NULL,
    month     TEXT     NOT NULL,
    currency  TEXT     NOT NULL,
    cents     BIGINT   NOT NULL,
    note      TEXT     NOT NULL,
    paid_at   BIGINT   NOT NULL,
    PRIMARY KEY (payout_id)
){{ROWID}};
CREATE INDEX card_payouts_seller ON card_payouts (seller, month);
