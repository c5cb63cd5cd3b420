-- +goose Up
-- online: earlier releases count no refusals.

-- What the service refused of verify and settle, by the hour, which is its first microsecond (UTC). agent_id is '' for none, reason the
-- word of the answer.
CREATE TABLE refusal_hours (
    plan_id  {{TEXT}} NOT NULL,
    hour     BIGINT   NOT NULL,
    agent_id {{TEXT}} NOT NULL,
    reason   {{TEXT}} NOT NULL,
    owner    {{TEXT}} NOT NULL,
    refused  BIGINT   NOT NULL,
    PRIMARY KEY (plan_id, hour, agent_id, reason)
){{ROOM}}{{ROWID}};
CREATE INDEX refusal_hours_owner ON refusal_hours (owner, hour);
