-- +goose Up

-- What goes some time after its access token has ended is found by the token: its requests without a burn, and the keys of a
-- request. Open holds are in none of these indexes, so that holds and settlements write no more than before.
CREATE INDEX permissions_ended ON permissions (expires_at);
CREATE INDEX requests_over ON requests (account_id, permission_hash) WHERE state <> 1;
CREATE INDEX request_keys_request ON request_keys (account_id, agent_request_id);

-- The first event of a stream that is kept; NULL: all are.
ALTER TABLE event_streams ADD COLUMN kept BIGINT;
