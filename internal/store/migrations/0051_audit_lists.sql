-- +goose Up

-- The audit log of a workspace in the order of its list, and the acts of one kind in it.
CREATE INDEX audit_log_time ON audit_log (workspace, at, number);
CREATE INDEX audit_log_act ON audit_log (workspace, act, at, number);
