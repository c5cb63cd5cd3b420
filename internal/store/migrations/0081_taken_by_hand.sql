-- +goose Up
-- online: earlier releases neither read nor write this column, and NULL is its zero value.

-- How many credits of a free order its seller took back by hand.
ALTER TABLE orders ADD COLUMN withdrawn BIGINT;
