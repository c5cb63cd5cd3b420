-- +goose Up
-- online: an earlier release keeps nothing here, and a rebuild then shows what it removed without agent.

-- What usage_hours has of settlements whose requests were removed, so that it can be counted anew: the journal does not name their
-- agents any more. restored is 0 while a rebuild has still to add the row.
CREATE TABLE usage_kept (
    plan_id      {{TEXT}} NOT NULL,
    hour         BIGINT   NOT NULL,
    agent_id     {{TEXT}} NOT NULL,
    owner        {{TEXT}} NOT NULL,
    settled      BIGINT   NOT NULL,
    credits_high BIGINT   NOT NULL,
    credits_low  BIGINT   NOT NULL,
    took_0       BIGINT   NOT NULL,
    took_1       BIGINT   NOT NULL,
    took_2       BIGINT   NOT NULL,
    took_3       BIGINT   NOT NULL,
    took_4       BIGINT   NOT NULL,
    took_5       BIGINT   NOT NULL,
    took_6       BIGINT   NOT NULL,
    took_7       BIGINT   NOT NULL,
    took_8       BIGINT   NOT NULL,
    took_9       BIGINT   NOT NULL,
    took_10      BIGINT   NOT NULL,
    took_11      BIGINT   NOT NULL,
    restored     BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, hour, agent_id)
){{ROOM}}{{ROWID}};
CREATE INDEX usage_kept_open ON usage_kept (plan_id, hour, agent_id) WHERE restored = 0;
