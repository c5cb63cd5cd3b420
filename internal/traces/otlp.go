package traces

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type object = map[string]any

// span is a span in OTLP JSON: ids are hexadecimal, 64-bit integers are strings, and enums are numbers.
type span struct {
	TraceID      trace.TraceID  `json:"traceId"`
	SpanID       trace.SpanID   `json:"spanId"`
	TraceState   string         `json:"traceState,omitempty"`
	ParentSpanID trace.SpanID   `json:"parentSpanId,omitzero"`
	Flags        int            `json:"flags"`
	Name         string         `json:"name"`
	Kind         trace.SpanKind `json:"kind"`
	Start        string         `json:"startTimeUnixNano"`
	End          string         `json:"endTimeUnixNano"`
	Attributes   []object       `json:"attributes,omitempty"`
	Events       []object       `json:"events,omitempty"`
	Status       object         `json:"status,omitempty"`
}

// message returns a request with spans of one provider and of [Scope]. Toll sets no links.
func message(spans []sdk.ReadOnlySpan) object {
	all := make([]span, len(spans))
	for i, s := range spans {
		c, parent := s.SpanContext(), s.Parent()
		all[i] = span{c.TraceID(), c.SpanID(), c.TraceState().String(), parent.SpanID(), int(c.TraceFlags()) | 0x100, s.Name(), s.SpanKind(),
			nanoseconds(s.StartTime()), nanoseconds(s.EndTime()), keyValues(s.Attributes()), nil, nil}
		if parent.IsRemote() { // 0x100 marks this bit as valid
			all[i].Flags |= 0x200
		}
		for _, e := range s.Events() {
			all[i].Events = append(all[i].Events, object{"timeUnixNano": nanoseconds(e.Time), "name": e.Name, "attributes": keyValues(e.Attributes)})
		}
		switch s.Status().Code {
		case codes.Ok:
			all[i].Status = object{"code": 1}
		case codes.Error:
			all[i].Status = object{"code": 2, "message": s.Status().Description}
		}
	}
	scope := object{"scope": object{"name": Scope}, "spans": all}
	return object{"resourceSpans": []object{{
		"resource": object{"attributes": keyValues(spans[0].Resource().Attributes())}, "scopeSpans": []object{scope}}}}
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// keyValues returns attributes as integers or texts, the only types that Toll sets.
func keyValues(attributes []attribute.KeyValue) []object {
	all := make([]object, len(attributes))
	for i, a := range attributes {
		all[i] = object{"key": a.Key, "value": object{"stringValue": a.Value.String()}}
		if a.Value.Type() == attribute.INT64 {
			all[i]["value"] = object{"intValue": a.Value.String()}
		}
	}
	return all
}
