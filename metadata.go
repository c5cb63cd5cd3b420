package toll

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Limits of what describes a plan or an agent (wire contract, section 1).
const (
	MaxNameRunes        = 256
	MaxDescriptionBytes = 16 << 10
	MaxTags             = 64
	MaxTagRunes         = 64
	MaxCustomDataBytes  = 16 << 10
	MaxURLRunes         = 2048
)

// Metadata describes a plan or an agent to people.
type Metadata struct {
	Name           string          `json:"name,omitempty"`
	Description    string          `json:"description,omitempty"`
	Author         string          `json:"author,omitempty"`
	License        string          `json:"license,omitempty"`
	Tags           []string        `json:"tags,omitempty"`
	Integration    string          `json:"integration,omitempty"`
	SampleLink     string          `json:"sampleLink,omitempty"`
	APIDescription string          `json:"apiDescription,omitempty"`
	DateCreated    *Time           `json:"dateCreated,omitempty"`
	CustomData     json.RawMessage `json:"customData,omitempty"` // a JSON object
}

// RawInput is JSON that a caller sent and that is kept as it is; null is the same as absent.
type RawInput json.RawMessage

// UnmarshalJSON keeps the text; null leaves nothing.
func (r *RawInput) UnmarshalJSON(b []byte) error {
	*r = nil
	if string(b) != "null" {
		*r = append(RawInput(nil), b...)
	}
	return nil
}

// MarshalJSON writes the text.
func (r RawInput) MarshalJSON() ([]byte, error) { return json.RawMessage(r).MarshalJSON() }

// MetadataInput is the metadata of a plan or an agent as it is sent; a member that is nil was absent or null. IsTrialPlan
// and AccessLimit count for plans only.
type MetadataInput struct {
	Name           *string     `json:"name,omitzero"`
	Description    *string     `json:"description,omitzero"`
	Author         *string     `json:"author,omitzero"`
	License        *string     `json:"license,omitzero"`
	Tags           []string    `json:"tags,omitzero"`
	Integration    *string     `json:"integration,omitzero"`
	SampleLink     *string     `json:"sampleLink,omitzero"`
	APIDescription *string     `json:"apiDescription,omitzero"`
	DateCreated    *Time       `json:"dateCreated,omitzero"`
	CustomData     RawInput    `json:"customData,omitzero"`
	IsTrialPlan    *Bool       `json:"isTrialPlan,omitzero"`
	Trial          *Bool       `json:"trial,omitzero"` // another name of isTrialPlan
	AccessLimit    *LimitInput `json:"accessLimit,omitzero"`
}

// or fills the members that are missing from the flat members of dialect A.
func (in MetadataInput) or(name, description *string, tags []string) MetadataInput {
	in.Name = cmp.Or(in.Name, name)
	in.Description = cmp.Or(in.Description, description)
	if in.Tags == nil {
		in.Tags = tags
	}
	return in
}

func (in MetadataInput) normalize(path string, now time.Time, f *faultList) Metadata {
	text := func(member string, s *string, runes int) string {
		v := orZero(s)
		if utf8.RuneCountInString(v) > runes {
			f.add(at(path, member), "is longer than %d characters", runes)
		}
		return v
	}
	long := func(member string, s *string) string {
		v := orZero(s)
		if len(v) > MaxDescriptionBytes {
			f.add(at(path, member), "is longer than %d bytes", MaxDescriptionBytes)
		}
		return v
	}
	m := Metadata{
		Name: text("name", in.Name, MaxNameRunes), Description: long("description", in.Description),
		Author: text("author", in.Author, MaxNameRunes), License: text("license", in.License, MaxNameRunes), Tags: in.Tags,
		Integration: text("integration", in.Integration, MaxNameRunes), SampleLink: text("sampleLink", in.SampleLink, MaxURLRunes),
		APIDescription: long("apiDescription", in.APIDescription), DateCreated: in.DateCreated,
	}
	if len(m.Tags) > MaxTags {
		f.add(at(path, "tags"), "has more than %d entries", MaxTags)
	}
	for i, t := range m.Tags {
		text(index("tags", i), &t, MaxTagRunes)
	}
	if m.DateCreated == nil {
		t := At(now.UTC().Truncate(time.Millisecond))
		m.DateCreated = &t
	}
	m.CustomData = customData(json.RawMessage(in.CustomData), at(path, "customData"), f)
	return m
}

// customData proves that b is a JSON object of bounded size and returns it without insignificant blanks; nil for null.
func customData(b json.RawMessage, path string, f *faultList) json.RawMessage {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || string(b) == "null" {
		return nil
	}
	var c bytes.Buffer
	if b[0] != '{' || json.Compact(&c, b) != nil {
		f.add(path, "must be an object")
		return nil
	}
	if c.Len() > MaxCustomDataBytes {
		f.add(path, "is longer than %d bytes", MaxCustomDataBytes)
		return nil
	}
	return c.Bytes()
}
