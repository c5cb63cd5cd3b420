-- +goose Up

-- Times are microseconds since 1970 in UTC, 0 for none. Names of words in double braces differ between engines.

CREATE TABLE settings (
    name  {{TEXT}}  NOT NULL,
    value {{BYTES}} NOT NULL,
    PRIMARY KEY (name)
){{ROWID}};

CREATE TABLE signing_keys (
    kid        {{TEXT}}  NOT NULL,
    public     {{BYTES}} NOT NULL,
    sealed     {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    retired_at BIGINT    NOT NULL,
    PRIMARY KEY (kid)
){{ROWID}};

-- name is NULL for a principal that was never named.
CREATE TABLE principals (
    address    {{TEXT}}  NOT NULL,
    name       {{TEXT}},
    sealed_key {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (address)
){{ROWID}};
CREATE UNIQUE INDEX principals_name ON principals (name);

-- hash is the SHA-256 of the key's JWT. The key itself is nowhere.
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
    PRIMARY KEY (id)
){{ROWID}};
CREATE INDEX api_keys_address ON api_keys (address, created_at, id);

-- metadata, price and credits are JSON. name repeats the name in metadata, for sorting. nonce is the registration
-- nonce, NULL without one; body_hash is what was registered under it.
CREATE TABLE plans (
    plan_id      {{TEXT}}  NOT NULL,
    owner        {{TEXT}}  NOT NULL,
    name         {{TEXT}}  NOT NULL,
    metadata     TEXT      NOT NULL,
    price        TEXT      NOT NULL,
    credits      TEXT      NOT NULL,
    access_limit TEXT      NOT NULL,
    max_orders   BIGINT    NOT NULL CHECK (max_orders >= 0),
    is_trial     BOOLEAN   NOT NULL,
    is_listed    BOOLEAN   NOT NULL,
    nonce        {{TEXT}},
    body_hash    {{BYTES}},
    created_at   BIGINT    NOT NULL,
    updated_at   BIGINT    NOT NULL,
    PRIMARY KEY (plan_id)
);
CREATE UNIQUE INDEX plans_nonce ON plans (owner, nonce);
CREATE INDEX plans_owner ON plans (owner, created_at, plan_id);

CREATE TABLE agents (
    agent_id           {{TEXT}}  NOT NULL,
    owner              {{TEXT}}  NOT NULL,
    name               {{TEXT}}  NOT NULL,
    metadata           TEXT      NOT NULL,
    api                TEXT      NOT NULL,
    sealed_credentials {{BYTES}},
    is_listed          BOOLEAN   NOT NULL,
    created_at         BIGINT    NOT NULL,
    updated_at         BIGINT    NOT NULL,
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

-- amount is token base units as decimal text.
CREATE TABLE orders (
    account_id     {{BYTES}} NOT NULL,
    order_id       {{TEXT}}  NOT NULL,
    plan_id        {{TEXT}}  NOT NULL,
    subscriber     {{TEXT}}  NOT NULL,
    status         TEXT      NOT NULL,
    tx_hash        TEXT      NOT NULL,
    credits        BIGINT    NOT NULL CHECK (credits >= 0),
    amount         TEXT      NOT NULL,
    currency       TEXT      NOT NULL,
    failure_reason TEXT      NOT NULL,
    created_at     BIGINT    NOT NULL,
    updated_at     BIGINT    NOT NULL,
    PRIMARY KEY (account_id, order_id)
){{PARTITION}};
CREATE INDEX orders_id ON orders (order_id);

-- How often a plan was ordered, whatever the account: what max_orders limits.
CREATE TABLE plan_orders (
    plan_id {{TEXT}} NOT NULL,
    orders  BIGINT   NOT NULL CHECK (orders >= 0),
    PRIMARY KEY (plan_id)
){{ROWID}};
