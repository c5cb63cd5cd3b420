package paidmcp

// ForgetBearerWarning lets the process warn of a bearer token once more.
func ForgetBearerWarning() { bearerWarned.Store(false) }
