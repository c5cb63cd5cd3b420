package gate

import _ "embed" // the schema

// Schema is the JSON schema (draft 2020-12) of a configuration, for editors.
//
//go:embed gate.schema.json
var Schema string
