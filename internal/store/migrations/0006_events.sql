-- +goose Up

-- The last event of each principal. Its row is the lock under which events are numbered, so that there is no gap and
-- no event appears behind one that was read.
CREATE TABLE event_streams (
    principal {{TEXT}} NOT NULL,
    last      BIGINT   NOT NULL,
    PRIMARY KEY (principal)
){{ROOM}}{{ROWID}};

-- How many events an object has, for each principal that sees it. A settlement has one and no row.
CREATE TABLE event_objects (
    principal {{TEXT}} NOT NULL,
    kind      {{TEXT}} NOT NULL,
    object_id {{TEXT}} NOT NULL,
    last      BIGINT   NOT NULL,
    PRIMARY KEY (principal, kind, object_id)
){{ROWID}};

-- data is JSON, '' for an event that is derived from an entry of the ledger, whose data is made when it is read.
CREATE TABLE events (
    principal       {{TEXT}}  NOT NULL,
    seq             BIGINT    NOT NULL,
    event_id        {{BYTES}} NOT NULL,
    type            {{TEXT}}  NOT NULL,
    kind            TEXT      NOT NULL,
    object_id       TEXT      NOT NULL,
    object_seq      BIGINT    NOT NULL,
    created_at      BIGINT    NOT NULL,
    data            TEXT      NOT NULL,
    entry_account   {{BYTES}},
    entry_seq       BIGINT    NOT NULL,
    PRIMARY KEY (principal, seq)
){{ROWID}};
CREATE INDEX events_type ON events (principal, type, seq);
CREATE INDEX events_created ON events (principal, created_at);

-- Up to which entry the events of an account are made. low_mark is the balance below which it is low.
CREATE TABLE event_cursors (
    account_id {{BYTES}} NOT NULL,
    seq        BIGINT    NOT NULL,
    low_mark   BIGINT    NOT NULL,
    PRIMARY KEY (account_id)
){{PARTITION}}{{ROOM}}{{ROWID}};

-- Delegations end by time: the sweep looks for those that ended since it last looked.
CREATE INDEX delegations_expiry ON delegations (expires_at);

-- types is JSON, '' for every type. seq is the last event for which deliveries are made. failing_since is the first
-- failure after the last success. secret and old_secret are sealed.
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
    PRIMARY KEY (webhook_id)
){{ROWID}};
CREATE INDEX webhooks_principal ON webhooks (principal, created_at, webhook_id);

-- seq is that of the event, 0 for a test, whose body is kept here. try_at is when a pending delivery is sent next, or,
-- while it is being sent, when another process may take it over. first_at is when it was first sent.
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
