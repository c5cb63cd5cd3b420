-- +goose Up

-- 1 when the record is registered, and one more with each change. NULL of records from before: 1.
ALTER TABLE agents ADD COLUMN version BIGINT;
ALTER TABLE plans ADD COLUMN version BIGINT;
