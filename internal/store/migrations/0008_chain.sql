-- +goose Up

-- What the crypto rail does on the chain. The ledger of credits does not need these tables, and they are never partitioned.

-- A user operation. nonce_key is its nonce key, op_hash its userOpHash once it is signed. untold is TRUE while checkout has not
-- heard what became of its order. evidence is the block that proves its state, NULL while there is none. data is JSON.
CREATE TABLE chain_ops (
    op_id      {{TEXT}}  NOT NULL,
    kind       TEXT      NOT NULL,
    state      {{TEXT}}  NOT NULL,
    version    BIGINT    NOT NULL,
    nonce_key  {{BYTES}} NOT NULL,
    op_hash    {{BYTES}},
    untold     BOOLEAN   NOT NULL,
    evidence   BIGINT,
    updated_at BIGINT    NOT NULL,
    data       TEXT      NOT NULL,
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

-- Who is at some work, '' for nobody. fence rises with each holder.
CREATE TABLE chain_leases (
    name       {{TEXT}} NOT NULL,
    holder     TEXT     NOT NULL,
    fence      BIGINT   NOT NULL,
    held_until BIGINT   NOT NULL,
    PRIMARY KEY (name)
){{ROWID}};

-- How far the chain has been read. base is a block so far below that a chain without it is another one.
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
    block_hash {{BYTES}} NOT NULL,
    log_index  BIGINT    NOT NULL,
    block      BIGINT    NOT NULL,
    data       TEXT      NOT NULL,
    PRIMARY KEY (block_hash, log_index)
){{ROWID}};

CREATE TABLE chain_delegations (
    hash          {{BYTES}} NOT NULL,
    delegation_id {{TEXT}}  NOT NULL,
    PRIMARY KEY (hash)
){{ROWID}};

-- Accounts of the service on the chain: role is service, relayer or mirror, number counts the accounts of a role from 0.
-- sealed_key opens with the master key alone.
CREATE TABLE chain_keys (
    role       {{TEXT}}  NOT NULL,
    number     BIGINT    NOT NULL,
    address    {{TEXT}}  NOT NULL,
    sealed_key {{BYTES}} NOT NULL,
    created_at BIGINT    NOT NULL,
    PRIMARY KEY (role, number)
){{ROWID}};
CREATE UNIQUE INDEX chain_keys_address ON chain_keys (address);

-- When the key of the wallet was given to its owner, who shares the custody since then. NULL: never.
ALTER TABLE principals ADD COLUMN exported_at BIGINT;
