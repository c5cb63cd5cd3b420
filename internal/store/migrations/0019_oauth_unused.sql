-- +goose Up

-- Whether somebody let the program in whose address this is. Of those that were there before nobody knows: they count as used.
ALTER TABLE oauth_redirects ADD COLUMN granted BOOLEAN NOT NULL DEFAULT TRUE;
CREATE INDEX oauth_redirects_unused ON oauth_redirects (used_at) WHERE NOT granted;
