-- +goose Up

-- One row per (plan, subscriber). The counters prove conservation in every committed state.
CREATE TABLE accounts (
    account_id      {{BYTES}} NOT NULL,
    plan_id         {{TEXT}}  NOT NULL,
    subscriber      {{TEXT}}  NOT NULL,
    balance         BIGINT    NOT NULL CHECK (balance >= 0),
    held            BIGINT    NOT NULL CHECK (held >= 0),
    open_holds      BIGINT    NOT NULL CHECK (open_holds >= 0),
    minted          BIGINT    NOT NULL CHECK (minted >= 0),
    burned          BIGINT    NOT NULL CHECK (burned >= 0),
    expired         BIGINT    NOT NULL CHECK (expired >= 0),
    taken_back      BIGINT    NOT NULL CHECK (taken_back >= 0),
    returned        BIGINT    NOT NULL CHECK (returned >= 0),
    seq             BIGINT    NOT NULL,
    commitment      {{BYTES}} NOT NULL,
    next_lot_end    BIGINT    NOT NULL,
    next_hold_end   BIGINT    NOT NULL,
    period_end      BIGINT    NOT NULL,
    orders          BIGINT    NOT NULL,
    updated_at      BIGINT    NOT NULL,
    PRIMARY KEY (account_id),
    CHECK (held <= balance),
    CHECK (minted - burned - expired - taken_back + returned = balance)
){{PARTITION}}{{ROOM}}{{ROWID}};
CREATE INDEX accounts_subscriber ON accounts (subscriber, plan_id);
CREATE INDEX accounts_plan ON accounts (plan_id);
CREATE INDEX accounts_lot_end ON accounts (next_lot_end);
CREATE INDEX accounts_hold_end ON accounts (next_hold_end);

-- Lots are numbered by the entry that minted them, so that ties of their end burn in order of creation. A lot whose order
-- was reversed ends at that moment: taken is what was taken back so far, old_end its end before (0 = not reversed). open
-- is 1 while there are credits left: an index on remaining itself would have to change with every burn.
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

-- tx is the first 8 bytes of the commitment: an index on them is a third of the size.
CREATE TABLE entries (
    account_id    {{BYTES}} NOT NULL,
    seq           BIGINT    NOT NULL,
    kind          BIGINT    NOT NULL,
    amount        BIGINT    NOT NULL CHECK (amount >= 0),
    balance_after BIGINT    NOT NULL CHECK (balance_after >= 0),
    ref           {{TEXT}}  NOT NULL,
    at            BIGINT    NOT NULL,
    commitment    {{BYTES}} NOT NULL,
    tx            BIGINT    NOT NULL,
    PRIMARY KEY (account_id, seq)
){{PARTITION}}{{ROWID}};
CREATE INDEX entries_tx ON entries (tx);

-- One row per request, from hold to settlement. entry_seq is 0 until a settlement; previous_burn is the entry of the
-- settlement before under the same permission, so that its uses are a chain and need no index.
CREATE TABLE requests (
    account_id       {{BYTES}} NOT NULL,
    agent_request_id {{TEXT}}  NOT NULL,
    state            BIGINT    NOT NULL,
    content          {{BYTES}} NOT NULL,
    permission_hash  {{BYTES}} NOT NULL,
    agent_id         TEXT      NOT NULL,
    resource         TEXT      NOT NULL,
    held             BIGINT    NOT NULL CHECK (held >= 0),
    amount           BIGINT    NOT NULL CHECK (amount >= 0),
    hold_ends_at     BIGINT    NOT NULL,
    created_at       BIGINT    NOT NULL,
    ended_at         BIGINT    NOT NULL,
    entry_seq        BIGINT    NOT NULL,
    previous_burn    BIGINT    NOT NULL,
    answer           {{BYTES}} NOT NULL,
    PRIMARY KEY (agent_request_id, account_id)
){{PARTITION}};
CREATE INDEX requests_open ON requests (account_id, hold_ends_at) WHERE state = 1;

-- A payload nonce or payment identifier names one request of an account.
CREATE TABLE request_keys (
    account_id       {{BYTES}} NOT NULL,
    request_key      {{TEXT}}  NOT NULL,
    agent_request_id {{TEXT}}  NOT NULL,
    PRIMARY KEY (account_id, request_key)
){{PARTITION}}{{ROWID}};

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
