-- +goose Up

-- What most settlements change of lots and permissions stands in the row of their account (ledger/hot.go). version counts the
-- writes of the row. NULL is their zero value.
ALTER TABLE accounts ADD COLUMN version BIGINT;
ALTER TABLE accounts ADD COLUMN hot {{BYTES}};
