-- +goose Up
-- It took a tenth of the rate of calls with a nonce or payment identifier. Keys of requests that went are found by a walk.
DROP INDEX request_keys_request;
