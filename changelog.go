package toll

import _ "embed"

// Changelog lists the releases of this module, in Markdown.
//
//go:embed CHANGELOG.md
var Changelog string
