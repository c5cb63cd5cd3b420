package gateway

// For tests.
var (
	SecretPatterns = secretPatterns
	RedactLog      = redactLog
	Redact         = redact
)

// Settings returns what applies now.
func (c *Core) Settings() Config { return c.set().Config }
