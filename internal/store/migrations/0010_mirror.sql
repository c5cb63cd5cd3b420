-- +goose Up

-- NULL for plans that were registered before this column was there: see store.MarkMirrored.
ALTER TABLE plans ADD COLUMN mirrored BOOLEAN;
CREATE INDEX plans_mirrored ON plans (plan_id) WHERE mirrored;

-- A period of published burns. credits is the sum of its leaves, as decimal text. state is closed, sent, anchored or final;
-- raw is the transaction that anchors it, stored before it is sent.
CREATE TABLE mirror_periods (
    period       BIGINT    NOT NULL,
    root         {{BYTES}} NOT NULL,
    leaves       BIGINT    NOT NULL,
    credits      TEXT      NOT NULL,
    state        TEXT      NOT NULL,
    tx_hash      {{BYTES}},
    raw          {{BYTES}},
    nonce        BIGINT    NOT NULL,
    sent_block   BIGINT    NOT NULL,
    block        BIGINT    NOT NULL,
    block_hash   {{BYTES}},
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

-- The tree above the leaves, so that a proof reads one node a level. Level 1 has the parents of leaves.
CREATE TABLE mirror_nodes (
    period BIGINT    NOT NULL,
    level  BIGINT    NOT NULL,
    node   BIGINT    NOT NULL,
    hash   {{BYTES}} NOT NULL,
    PRIMARY KEY (period, level, node)
){{ROWID}};

-- Up to which entry the burns of an account are in periods.
CREATE TABLE mirror_cursors (
    account_id {{BYTES}} NOT NULL,
    seq        BIGINT    NOT NULL,
    PRIMARY KEY (account_id)
){{PARTITION}}{{ROWID}};
