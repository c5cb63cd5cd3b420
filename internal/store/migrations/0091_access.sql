-- +goose Up
-- online: an earlier release lets ended sessions in, and notes no use.

-- A session that began no later has no access to the workspace any more. NULL: all have.
ALTER TABLE memberships ADD COLUMN sessions_from BIGINT;

-- In which workspaces the session of a person was used, and when last, by the minute.
CREATE TABLE session_uses (
    session_id {{TEXT}} NOT NULL,
    workspace  {{TEXT}} NOT NULL,
    used_at    BIGINT   NOT NULL,
    PRIMARY KEY (session_id, workspace)
){{ROWID}};
CREATE INDEX session_uses_used ON session_uses (used_at);

-- Since when the operator has a workspace or a plan sell nothing, and an API key call nothing. NULL or 0: not suspended.
ALTER TABLE principals ADD COLUMN suspended_at BIGINT;
ALTER TABLE plans ADD COLUMN suspended_at BIGINT;
ALTER TABLE api_keys ADD COLUMN suspended_at BIGINT;
