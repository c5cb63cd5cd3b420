package gateway

// For tests.
var (
	SecretPatterns = secretPatterns
	RedactLog      = redactLog
	Redact         = redact
)
