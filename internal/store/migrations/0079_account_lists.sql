-- +goose Up

-- All accounts in the order of the operators' list.
CREATE INDEX principals_created ON principals (created_at, address);
