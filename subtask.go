package toll

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Limits of a sub-task.
const (
	MaxSubTaskTag         = 256      // characters
	MaxSubTaskDescription = 16 << 10 // bytes
	MaxSubTaskMetadata    = 16 << 10 // bytes
)

// SubTaskStatus is the status of a sub-task.
type SubTaskStatus string

// States of a sub-task.
const (
	SubTaskPending SubTaskStatus = "PENDING"
	SubTaskSuccess SubTaskStatus = "SUCCESS"
	SubTaskFailed  SubTaskStatus = "FAILED"
)

// SubTask is a part of the work for a request. Recording it burns nothing; settle with a margin reads its credits (wire
// contract, section 20).
type SubTask struct {
	ID             string          `json:"subTaskId"` // UUID
	AgentRequestID string          `json:"agentRequestId"`
	Credits        Credits         `json:"creditsToRedeem"`
	Tag            string          `json:"tag"`
	Description    string          `json:"description"`
	Status         SubTaskStatus   `json:"status"`
	Metadata       json.RawMessage `json:"metadata,omitempty"`
	CreatedAt      Time            `json:"createdAt"`
}

// SubTaskInput is the body that records a sub-task of a request.
type SubTaskInput struct {
	AgentRequestID  *string         `json:"agentRequestId,omitzero" doc:"Id of the request. Required, here or as requestId." maxLength:"128"`
	RequestID       *string         `json:"requestId,omitzero" doc:"Alias of agentRequestId." maxLength:"128"`
	CreditsToRedeem *Credits        `json:"creditsToRedeem,omitzero" doc:"Cost of the sub-task in credits. Default 0."`
	CreditsUsed     *Credits        `json:"creditsUsed,omitzero" doc:"Alias of creditsToRedeem."`
	Tag             *string         `json:"tag,omitzero" doc:"At most 256 characters."`
	TaskName        *string         `json:"taskName,omitzero" doc:"Alias of tag."`
	Description     *string         `json:"description,omitzero" doc:"At most 16 KiB."`
	Status          *string         `json:"status,omitzero" doc:"SUCCESS, FAILED, or PENDING, in upper or lower case. Default PENDING."`
	Metadata        json.RawMessage `json:"metadata,omitzero" doc:"An object of at most 16 KiB."`
}

// SubTask returns the sub-task without id and time, or an error that lists every wrong member.
func (in *SubTaskInput) SubTask() (*SubTask, error) {
	var f faultList
	t := &SubTask{
		AgentRequestID: *either(&f, "requestId", in.AgentRequestID, in.RequestID), Credits: *either(&f, "creditsUsed", in.CreditsToRedeem, in.CreditsUsed),
		Tag: *either(&f, "taskName", in.Tag, in.TaskName), Description: *either(&f, "description", in.Description, nil), Status: SubTaskPending,
	}
	if t.AgentRequestID == "" {
		f.add("agentRequestId", "is required")
	}
	text := func(path, s string, length, most int, unit string) {
		switch {
		case length > most:
			f.add(path, "must be at most %d %s long", most, unit)
		case strings.IndexByte(s, 0) >= 0:
			f.add(path, "must not contain a NUL character")
		}
	}
	text("tag", t.Tag, utf8.RuneCountInString(t.Tag), MaxSubTaskTag, "characters")
	text("description", t.Description, len(t.Description), MaxSubTaskDescription, "bytes")
	if in.Status != nil && *in.Status != "" {
		switch s := SubTaskStatus(strings.ToUpper(*in.Status)); s {
		case SubTaskPending, SubTaskSuccess, SubTaskFailed:
			t.Status = s
		default:
			f.add("status", "must be SUCCESS, FAILED, or PENDING")
		}
	}
	if m := strings.TrimSpace(string(in.Metadata)); m != "" && m != "null" {
		switch {
		case m[0] != '{':
			f.add("metadata", "must be an object")
		case len(m) > MaxSubTaskMetadata:
			f.add("metadata", "must be at most %d bytes long", MaxSubTaskMetadata)
		default:
			t.Metadata = json.RawMessage(m)
		}
	}
	return t, f.err()
}

// either returns whichever of a and b is set, or a zero value. Different values are a fault of the second member.
func either[T comparable](f *faultList, second string, a, b *T) *T {
	switch {
	case a == nil && b == nil:
		return new(T)
	case a == nil:
		return b
	case b != nil && *a != *b:
		f.add(second, "must equal the member that it is an alias of")
	}
	return a
}
