-- +goose Up

-- The members of a workspace, and the sessions of a person, in the order of their lists.
CREATE INDEX memberships_workspace ON memberships (workspace, created_at, user_id);
DROP INDEX browser_sessions_user;
CREATE INDEX browser_sessions_user ON browser_sessions (user_id, since, token) WHERE user_id IS NOT NULL;
