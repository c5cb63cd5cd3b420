package toll

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Limits of the metadata of a plan or an agent (wire contract, section 1).
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
	DateCreated    Time            `json:"dateCreated,omitzero"`
	CustomData     json.RawMessage `json:"customData,omitempty"` // a JSON object
}

// MetadataRecord is [Metadata] on the wire, where these members are always present: name, description, tags, and dateCreated.
type MetadataRecord struct {
	Name           string          `json:"name"`
	Description    string          `json:"description"`
	Author         string          `json:"author,omitempty"`
	License        string          `json:"license,omitempty"`
	Tags           []string        `json:"tags"`
	Integration    string          `json:"integration,omitempty"`
	SampleLink     string          `json:"sampleLink,omitempty"`
	APIDescription string          `json:"apiDescription,omitempty"`
	DateCreated    Time            `json:"dateCreated"`
	CustomData     json.RawMessage `json:"customData,omitempty"`
}

// MainRecord is metadata.main. Only plans have Price and IsTrialPlan.
type MainRecord struct {
	MetadataRecord
	Price       string `json:"price,omitempty" doc:"Price of an order as an amount of the currency, such as 2.00. Only for plans."`
	IsTrialPlan *bool  `json:"isTrialPlan,omitempty"`
}

func (m Metadata) record(created time.Time) MainRecord {
	r := MetadataRecord(m)
	r.Tags, r.DateCreated = present(m.Tags), cmp.Or(m.DateCreated, At(created))
	return MainRecord{MetadataRecord: r}
}

func (r MainRecord) metadata() Metadata {
	m := Metadata(r.MetadataRecord)
	if len(m.Tags) == 0 {
		m.Tags = nil
	}
	return m
}

// RawInput is JSON from a request, kept unchanged. null is the same as absent.
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

// MetadataInput is the metadata of a plan or an agent in a request; a nil member was absent or null. IsTrialPlan and
// AccessLimit apply only to plans.
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
	Trial          *Bool       `json:"trial,omitzero"` // alias of isTrialPlan
	AccessLimit    *LimitInput `json:"accessLimit,omitzero"`
}

// or returns the input with missing members filled in from the flat members of dialect A.
func (in MetadataInput) or(name, description *string, tags []string) MetadataInput {
	in.Name = cmp.Or(in.Name, name)
	in.Description = cmp.Or(in.Description, description)
	if in.Tags == nil {
		in.Tags = tags
	}
	return in
}

// MetadataUpdate changes the metadata of a plan or an agent. Null for the whole object clears every member. IsTrialPlan and
// AccessLimit cannot change; they are accepted only when they equal the stored values.
type MetadataUpdate struct {
	Name           Change[string]          `json:"name,omitzero"`
	Description    Change[string]          `json:"description,omitzero"`
	Author         Change[string]          `json:"author,omitzero"`
	License        Change[string]          `json:"license,omitzero"`
	Tags           Change[[]string]        `json:"tags,omitzero"`
	Integration    Change[string]          `json:"integration,omitzero"`
	SampleLink     Change[string]          `json:"sampleLink,omitzero"`
	APIDescription Change[string]          `json:"apiDescription,omitzero"`
	DateCreated    Change[Time]            `json:"dateCreated,omitzero"`
	CustomData     Change[json.RawMessage] `json:"customData,omitzero"`
	IsTrialPlan    *Bool                   `json:"isTrialPlan,omitzero"`
	AccessLimit    *LimitInput             `json:"accessLimit,omitzero"`
}

// UnmarshalJSON distinguishes null from absent, for the object and for its members.
func (u *MetadataUpdate) UnmarshalJSON(b []byte) error { return decodeChanges(b, u) }

// apply returns the metadata with the changes. The caller has already merged the flat members of dialect A into u.
func (u MetadataUpdate) apply(m Metadata, path string, created time.Time, f *faultList) Metadata {
	for _, c := range []struct {
		change Change[string]
		member *string
	}{
		{u.Name, &m.Name}, {u.Description, &m.Description}, {u.Author, &m.Author}, {u.License, &m.License},
		{u.Integration, &m.Integration}, {u.SampleLink, &m.SampleLink}, {u.APIDescription, &m.APIDescription},
	} {
		assign(c.change, c.member)
	}
	assign(u.Tags, &m.Tags)
	assign(u.DateCreated, &m.DateCreated)
	assign(u.CustomData, &m.CustomData)
	if u.Name.IsSet && m.Name == "" {
		f.add(at(path, "name"), "is required and cannot be cleared")
	}
	return m.normalize(path, created, f)
}

func (in MetadataInput) normalize(path string, now time.Time, f *faultList) Metadata {
	return Metadata{
		Name: orZero(in.Name), Description: orZero(in.Description), Author: orZero(in.Author), License: orZero(in.License), Tags: in.Tags,
		Integration: orZero(in.Integration), SampleLink: orZero(in.SampleLink), APIDescription: orZero(in.APIDescription),
		DateCreated: orZero(in.DateCreated), CustomData: json.RawMessage(in.CustomData),
	}.normalize(path, now, f)
}

// normalize checks the limits of the members and sets dateCreated to now when it is zero.
func (m Metadata) normalize(path string, now time.Time, f *faultList) Metadata {
	short := func(member, text string, runes int) {
		if utf8.RuneCountInString(text) > runes {
			f.add(at(path, member), "must be at most %d characters long", runes)
		}
	}
	long := func(member, text string) {
		if len(text) > MaxDescriptionBytes {
			f.add(at(path, member), "must be at most %d bytes long", MaxDescriptionBytes)
		}
	}
	short("name", m.Name, MaxNameRunes)
	long("description", m.Description)
	short("author", m.Author, MaxNameRunes)
	short("license", m.License, MaxNameRunes)
	short("integration", m.Integration, MaxNameRunes)
	short("sampleLink", m.SampleLink, MaxURLRunes)
	long("apiDescription", m.APIDescription)
	if len(m.Tags) > MaxTags {
		f.add(at(path, "tags"), "must have at most %d entries", MaxTags)
	}
	for i, t := range m.Tags {
		short(index("tags", i), t, MaxTagRunes)
	}
	if m.DateCreated.IsZero() {
		m.DateCreated = At(now.UTC().Truncate(time.Millisecond))
	}
	m.CustomData = customData(m.CustomData, at(path, "customData"), f)
	return m
}

// customData returns b, a JSON object of at most MaxCustomDataBytes, without insignificant whitespace; nil for null or after a fault.
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
		f.add(path, "must be at most %d bytes long", MaxCustomDataBytes)
		return nil
	}
	return c.Bytes()
}
