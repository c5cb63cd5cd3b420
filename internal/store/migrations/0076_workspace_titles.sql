-- +goose Up
-- online: an earlier release shows the name that the operator gave, or the address.

-- What members call a workspace, NULL for nothing. The column name is unique: operators look accounts up by it.
ALTER TABLE principals ADD COLUMN title {{TEXT}};
