-- +goose Up

-- Whether somebody let the program in whose address this is. NULL of those that were there before: nobody knows, and they stay as if.
ALTER TABLE oauth_redirects ADD COLUMN granted BOOLEAN;
CREATE INDEX oauth_redirects_unused ON oauth_redirects (used_at) WHERE NOT granted;
