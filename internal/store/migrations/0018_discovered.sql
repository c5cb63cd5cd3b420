-- +goose Up

-- What was taken so far may have been rewritten by any payer. The next payment describes it again.
DELETE FROM discovered;
