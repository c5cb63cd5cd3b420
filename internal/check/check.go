// Package check defines the findings of toll doctor, toll gateway doctor, and the operator's page.
package check

import "fmt"

// Check is one finding about a part of the service.
type Check struct {
	Name   string `json:"check"`
	Status string `json:"status"` // OK, Warning, or Failed
	Detail string `json:"detail"` // the observation and, unless the status is OK, how to fix it; never a secret
}

// Statuses of a check.
const (
	OK      = "ok"
	Warning = "warning"
	Failed  = "failed"
)

// Report adds a check. [List.Add] is one.
type Report func(name, status, format string, args ...any)

// List is a list of findings.
type List []Check

// Add appends a check.
func (l *List) Add(name, status, format string, args ...any) {
	*l = append(*l, Check{name, status, fmt.Sprintf(format, args...)})
}
