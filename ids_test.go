package toll_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

const (
	maxUint256 = "115792089237316195423570985008687907853269984665640564039457584007913129639935"
	twoTo256   = "115792089237316195423570985008687907853269984665640564039457584007913129639936"
)

// wantCode fails unless err is, or wraps, an error with this code.
func wantCode(t *testing.T, err error, code toll.Code) *toll.Error {
	t.Helper()
	var e *toll.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error with %s", err, code)
	}
	if e.Code != code {
		t.Fatalf("got %v, want %s", e, code)
	}
	return e
}

// T50
func TestIDs(t *testing.T) {
	bad := []string{
		`"` + twoTo256 + `"`, `"-1"`, `"007"`, `"0"`, `""`, `"0x1"`, `7`, `1e3`, `"1.0"`, `"1e3"`, `" 1"`, `"1 "`, `"+1"`, `"1_000"`,
		`"٥"`, `"５"`, `"\u0031"`, `true`, `{}`, `[]`, `["1"]`, `"` + strings.Repeat("9", 78) + `"`, `"` + strings.Repeat("1", 100<<10) + `"`,
	}
	for _, in := range bad {
		var plan struct {
			ID toll.PlanID `json:"id"`
		}
		err := json.Unmarshal([]byte(`{"id":`+in+`}`), &plan)
		wantCode(t, err, toll.CodeBadID)
		if plan.ID != "" {
			t.Errorf("%.40s left a plan id behind", in)
		}
		var agent toll.AgentID
		err = json.Unmarshal([]byte(in), &agent)
		if e := wantCode(t, err, toll.CodeBadID); len(e.Details) > 120 {
			t.Errorf("%.40s: details of %d bytes", in, len(e.Details))
		}
	}
	for _, in := range []string{"1", "10", maxUint256} {
		id, err := toll.ParsePlanID(in)
		if err != nil || string(id) != in {
			t.Errorf("ParsePlanID(%s) = %s, %v", in, id, err)
		}
	}
	seen := map[toll.PlanID]bool{}
	for range 100 {
		id := toll.NewPlanID()
		if _, err := toll.ParsePlanID(string(id)); err != nil || seen[id] {
			t.Fatalf("NewPlanID gave %s, %v", id, err)
		}
		seen[id] = true
	}
}

func TestAddress_JSON(t *testing.T) {
	good := "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	for _, in := range []string{
		`""`, `"0x"`, `"` + good[2:] + `"`, `"0X` + good[2:] + `"`, `"` + good + `0"`, `"` + good[:41] + `"`, `"` + good[:41] + `g"`, `5`, `true`, `{}`, `[]`,
		`" ` + good[:41] + `"`,
	} {
		var a toll.Address
		wantCode(t, json.Unmarshal([]byte(in), &a), toll.CodeBadAddress)
		if !a.IsZero() {
			t.Errorf("%s left an address behind", in)
		}
	}
	var a toll.Address
	must.Do(t, json.Unmarshal([]byte(strings.ToLower(`"`+good+`"`)), &a))
	if b, err := json.Marshal(a); err != nil || string(b) != `"`+good+`"` {
		t.Errorf("got %s, %v", b, err)
	}
	if a.Lower() != strings.ToLower(good) {
		t.Errorf("Lower is %s", a.Lower())
	}
}

// TestAddress_Remembered writes addresses that share a place in the memory of texts, in turns and at once.
func TestAddress_Remembered(t *testing.T) {
	want := map[toll.Address]string{
		{}: "0x0000000000000000000000000000000000000000",
		toll.MustAddress("0x70997970c51812dc3a010c7d01b50e0d17dc79c8"): "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		toll.MustAddress("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"): "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
		toll.MustAddress("0xd1220a0cf47c7b9be7a2e6ba89f429762e7b9adb"): "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
	}
	other := toll.MustAddress("0x80997970c51812dc3a010c7d01b50e0d17dc79c8") // ends as the first one
	if s := other.String(); !strings.EqualFold(s, other.Lower()) {
		t.Fatal(s)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				_ = other.String()
				for a, text := range want {
					if a.String() != text {
						t.Errorf("%s in place of %s", a, text)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestHash(t *testing.T) {
	h := toll.NewHash()
	got, err := toll.ParseHash("0x" + strings.ToUpper(h.String()[2:]))
	if err != nil || got != h {
		t.Errorf("got %s, %v, want %s", got, err, h)
	}
	for _, in := range []string{"", "0x", h.String()[2:], h.String() + "0", h.String()[:65] + "x"} {
		if _, err := toll.ParseHash(in); err == nil {
			t.Errorf("ParseHash(%q) took it", in)
		}
	}
}

func TestUUID(t *testing.T) {
	id := toll.NewUUID()
	got, err := toll.ParseUUID(strings.ToUpper(id))
	if err != nil || got != id {
		t.Errorf("got %s, %v, want %s", got, err, id)
	}
	if id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) {
		t.Errorf("%s is not of version 4", id)
	}
	for _, in := range []string{"", id[1:], id + "0", strings.ReplaceAll(id, "-", ""), "{" + id[1:35] + "}", id[:35] + "g", "urn:uuid:" + id} {
		_, err := toll.ParseUUID(in)
		wantCode(t, err, toll.CodeBadUUID)
	}
}

func TestTime(t *testing.T) {
	for in, want := range map[string]string{
		`"2026-11-21T01:52:18.322Z"`:         "2026-11-21T01:52:18.322Z",
		`"2026-11-21T02:52:18.322999+01:00"`: "2026-11-21T01:52:18.322Z",
		`"2026-11-21T01:52:18Z"`:             "2026-11-21T01:52:18.000Z",
		`"2026-11-22T12:33:13.427204"`:       "2026-11-22T12:33:13.427Z",
		`"2026-11-22T12:33:13"`:              "2026-11-22T12:33:13.000Z",
	} {
		var v toll.Time
		must.Do(t, json.Unmarshal([]byte(in), &v))
		if b, _ := json.Marshal(v); string(b) != `"`+want+`"` {
			t.Errorf("%s became %s, want %s", in, b, want)
		}
	}
	for _, in := range []string{`"2026-11-21T01:52"`, `"2026-11-21 01:52:18"`, `"2026-13-21T01:52:18"`, `"yesterday"`, `1795225937872`, `""`} {
		var v toll.Time
		wantCode(t, json.Unmarshal([]byte(in), &v), toll.CodeBadRequest)
	}
	if toll.AtPtr(time.Time{}) != nil {
		t.Error("AtPtr of no time is not nil")
	}
}
