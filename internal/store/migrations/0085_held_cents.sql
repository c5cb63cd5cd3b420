-- +goose Up
-- online: earlier releases neither read nor write this column, and NULL is its zero value.

-- Of a failed order whose payment may still show up: the cents that its delegation reserves for it until then.
ALTER TABLE orders ADD COLUMN held_cents BIGINT;
