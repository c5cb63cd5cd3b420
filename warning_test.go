package toll_test

import (
	"encoding/json"
	"testing"

	"github.com/tollhq/toll"
)

func TestWarning(t *testing.T) {
	for text, want := range map[string]toll.Warning{
		`"creditsConfig.minAmout"`:                      {Message: "creditsConfig.minAmout"},
		`{"code":"BCK.X402.0920","message":"a reason"}`: {Code: toll.CodeDeprecatedForm, Message: "a reason"},
	} {
		var w toll.Warning
		if err := json.Unmarshal([]byte(text), &w); err != nil || w != want {
			t.Errorf("%s is read as %+v, %v", text, w, err)
		}
		if b, err := json.Marshal(w); err != nil || string(b) != text {
			t.Errorf("%+v is written as %s, %v", w, b, err)
		}
	}
	if err := json.Unmarshal([]byte(`3`), new(toll.Warning)); err == nil {
		t.Error("a number is taken")
	}
}
