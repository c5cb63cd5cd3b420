-- +goose Up
-- online: earlier releases do not read the table, and adopt what is left of their work by the flags of the records.

-- Rare work with one row a thing, which is due at a time. A row with held_until in the future is somebody's: of the holder, or, with an
-- empty one, of the call that wrote it. attempt rises with each claim.
CREATE TABLE jobs (
    kind {{TEXT}} NOT NULL,
    key {{BYTES}} NOT NULL,
    due BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder {{TEXT}} NOT NULL,
    held_until BIGINT NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX jobs_due ON jobs (due);
