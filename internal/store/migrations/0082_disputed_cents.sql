-- +goose Up
-- online: earlier releases neither read nor write this column, and NULL with a dispute means the whole payment, as they took it.

-- How many cents of a paid order a dispute that is open or lost is about.
ALTER TABLE orders ADD COLUMN disputed_cents BIGINT;
