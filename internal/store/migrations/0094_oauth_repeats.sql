-- +goose Up

-- The next refresh token, sealed with a key that only the used token gives. NULL: the token is not used, or was used before this column.
ALTER TABLE oauth_refresh_tokens ADD COLUMN successor {{BYTES}};
-- The network of a device, whose waiting devices are counted together. NULL: the device began before this column.
ALTER TABLE oauth_devices ADD COLUMN counted_source {{TEXT}};
CREATE INDEX oauth_devices_source ON oauth_devices (counted_source, expires_at);
