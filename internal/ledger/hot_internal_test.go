package ledger

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
)

func FuzzHot(f *testing.F) {
	full := hot{}
	for i := range maxHotLots {
		full.lots = append(full.lots, hotLot{math.MaxInt64 - int64(i), toll.MaxCredits})
	}
	for i := range maxHotPermissions {
		full.permissions = append(full.permissions, hotPermission{toll.Hash{byte(i)}, 1, 2, 3, math.MaxInt64})
	}
	f.Add(full.encode())
	f.Add((&hot{lots: []hotLot{{1, 2}}}).encode())
	f.Add("\x01\x09" + strings.Repeat("\x01\x01", 9) + "\x00") // a lot too many
	f.Add("\x02\x00\x00")
	f.Add("\x01\x00\x01")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHot(text)
		if err != nil {
			return
		}
		if len(h.lots) > maxHotLots || len(h.permissions) > maxHotPermissions {
			t.Fatalf("%d lots, %d permissions", len(h.lots), len(h.permissions))
		}
		again, err := parseHot(h.encode())
		if err != nil || !reflect.DeepEqual(again, h) {
			t.Fatalf("%+v became %+v: %v", h, again, err)
		}
	})
	if h, err := parseHot(full.encode()); err != nil || !reflect.DeepEqual(h, full) {
		f.Fatalf("%+v: %v", h, err)
	}
	for _, text := range []string{"\x01\x09" + strings.Repeat("\x01\x01", 9) + "\x00", "\x02\x00\x00", "\x01\x00\x01", "\x01\x00\x00\x00", "\x01"} {
		if _, err := parseHot(text); err == nil {
			f.Errorf("%q was read", text)
		}
	}
}
