-- +goose Up
-- online: an earlier release cannot send to the address in url; what it tries counts as a failure and is repeated.

-- The credential whose mail address gets the events, NULL for a webhook with a url. The address stands in credentials alone.
ALTER TABLE webhooks ADD COLUMN credential_id {{BYTES}};
