-- +goose Up

-- What was taken so far may have been written by any payer. Owners say it again with their next payment.
DELETE FROM discovered;
