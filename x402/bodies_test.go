package x402_test

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

const usualRequired = `{"x402Version":2,"resource":{"url":"/ask"},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","amount":"1",` +
	`"asset":"credits","payTo":"merchant","maxTimeoutSeconds":60,"planId":"7","extra":{"version":"1","agentId":"9","httpVerb":"POST"}}],` +
	`"extensions":{"bazaar":{"info":{"a":[1,"}"]}}}}`

func usualBody(more string) string {
	return `{"paymentRequired":` + usualRequired + `,"x402AccessToken":"aa.bb.cc"` + more + `}`
}

// sameDecoding fails unless both decoders say the same of a text, whether or not it came before.
func sameDecoding[In any](t *testing.T, bodies *x402.Bodies, data string) {
	t.Helper()
	want := new(In)
	wantErr := x402.Decode([]byte(data), want)
	for turn := range 2 {
		got := new(In)
		text := []byte(data)
		err := bodies.Decode(toll.Address{1}, text, got)
		clear(text) // nothing that is kept may lie in the body
		switch {
		case (err == nil) != (wantErr == nil) || err != nil && fmt.Sprintf("%#v", err) != fmt.Sprintf("%#v", wantErr):
			t.Fatalf("turn %d of %T: %v in place of %v\n%q", turn, got, err, wantErr, data)
		case err == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("turn %d: %+v\nin place of %+v\n%q", turn, got, want, data)
		}
	}
}

var oddBodies = []string{
	usualBody(""), usualBody(`,"maxAmount":"5","hold":true,"holdSecs":30`), usualBody(`,"agentRequestId":"r-1","maxAmount":5`),
	usualBody(`,"hold":"false","holdSecs":"900","maxAmount":"0"`), usualBody(`,"batch":true,"marginPercent":"1.5"`),
	usualBody(`,"holdSecs":901`), usualBody(`,"holdSecs":0`), usualBody(`,"maxAmount":"05"`), usualBody(`,"maxAmount":1e3`),
	usualBody(`,"maxAmount":null,"hold":null,"agentRequestId":null`), usualBody(`,"agentRequestId":""`), usualBody(`,"agentRequestId":"a b"`),
	usualBody(`,"agentRequestId":"\u0061"`), usualBody(`,"agentRequestId":"é"`), usualBody(",\"agentRequestId\":\"a\x01\""), usualBody(",\"agentRequestId\":\"\xff\""),
	usualBody(`,"maxAmount":"1","maxAmount":"1"`), usualBody(`,"x402AccessToken":"aa.bb.cc"`), usualBody(`,"unknown":{"a":1}`), usualBody(`,"Hold":true`),
	usualBody(`,"hold":tru`), usualBody(`,"maxAmount":1:2`), usualBody(`,"maxAmount":"1"2`), usualBody(`,`), usualBody(`}`), usualBody(`,"agentRequestId":"a"b`),
	usualBody(`,"paymentPayload":"x"`), usualBody(`,"paymentPayload":null`), usualBody(`,"m\u0061xAmount":"1"`), usualBody(`,"":1`),
	usualBody("") + " ", " " + usualBody("\n,\t\"hold\" : true\r"), usualBody("") + "x", usualBody("") + "\x00", "\xef\xbb\xbf" + usualBody(""),
	usualBody(`,"labels":{"upstream":"a","route":"GET /é","model":"m"}`), usualBody(`,"labels":{}`), usualBody(`,"labels":null`),
	usualBody(`,"labels":{"model":"a","model":"b"}`), usualBody(`,"labels":{"model":7}`), usualBody(`,"labels":{"other":"a"}`), usualBody(`,"labels":"a"`),
	usualBody(`,"batch":true,"maxAmount":"3"`), strings.Replace(usualBody(""), `"x402Version":2`, `"x402Version":1`, 1),
	strings.Replace(usualBody(""), `"x402Version":2`, `"x402Version":2,"x402Version":2`, 1), strings.Replace(usualBody(""), `"url":"/ask"`, `"url":"\ud800"`, 1),
	strings.Replace(usualBody(""), usualRequired, "null", 1), strings.Replace(usualBody(""), usualRequired, "7", 1),
	strings.Replace(usualBody(""), usualRequired, `[`+usualRequired+`]`, 1), strings.Replace(usualBody(""), usualRequired, usualRequired+`}`, 1),
	strings.Replace(usualBody(""), usualRequired, `{"accepts":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`}`, 1),
	strings.Replace(usualBody(""), `"a":[1,"}"]`, `"a":`+strings.Repeat("[", 40)+strings.Repeat("]", 40), 1),
	strings.Replace(usualBody(""), usualRequired, fmt.Sprintf("%q", usualRequired), 1),
	strings.Replace(usualBody(""), usualRequired, `"`+base64.StdEncoding.EncodeToString([]byte(usualRequired))+`"`, 1),
	strings.Replace(usualBody(""), usualRequired, `"`+base64.RawURLEncoding.EncodeToString([]byte(usualRequired))+`"`, 1),
	strings.Replace(usualBody(""), usualRequired, `"no base64"`, 1), strings.Replace(usualBody(""), `"aa.bb.cc"`, `{"x402Version":2}`, 1),
	strings.Replace(usualBody(""), `"aa.bb.cc"`, `null`, 1), strings.Replace(usualBody(""), `"aa.bb.cc"`, `7`, 1), strings.Replace(usualBody(""), `"aa.bb.cc"`, `""`, 1),
	`{}`, ``, ` `, `{`, `{"`, `{"a`, `{"a":`, `{"paymentRequired":`, `{"paymentRequired":{`, `{"paymentRequired":"`, `{"paymentRequired":"\`, `[]`, `null`, `"x"`,
	`{"x402AccessToken":"aa.bb.cc"}`, `{"paymentRequired":` + usualRequired + `}`,
	`{"paymentPayload":{"x402Version":2},"paymentRequirements":{"scheme":"a","network":"b"}}`,
}

func TestBodies_AsDecode(t *testing.T) {
	bodies := x402.NewBodies()
	for _, text := range oddBodies {
		sameDecoding[x402.VerifyRequest](t, bodies, text)
		sameDecoding[x402.SettleRequest](t, bodies, text)
		// Wherever a body is cut or a byte of it is another one, both say the same.
		for i := range len(text) {
			sameDecoding[x402.VerifyRequest](t, bodies, text[:i])
			sameDecoding[x402.SettleRequest](t, bodies, text[:i]+string("\"{}[],:\\0 \x00\x80a"[i%13])+text[i+1:])
		}
	}
}

func FuzzBodies(f *testing.F) {
	for _, text := range oddBodies {
		f.Add(text)
	}
	bodies := x402.NewBodies()
	f.Fuzz(func(t *testing.T, text string) {
		sameDecoding[x402.VerifyRequest](t, bodies, text)
		sameDecoding[x402.SettleRequest](t, bodies, text)
	})
}

// TestBodies_Kept holds that a repeated PaymentRequired is not decoded again.
func TestBodies_Kept(t *testing.T) {
	bodies := x402.NewBodies()
	accepts := func(sender byte, body string) *x402.Requirements {
		var r x402.VerifyRequest
		must.Do(t, bodies.Decode(toll.Address{sender}, []byte(body), &r))
		return &r.PaymentRequired.Accepts[0]
	}
	first := accepts(1, usualBody(""))
	if accepts(1, usualBody(`,"hold":true`)) != first {
		t.Error("the same bytes were decoded again")
	}
	if accepts(2, usualBody("")) == first || accepts(1, strings.Replace(usualBody(""), "7", "8", 1)) == first {
		t.Error("another sender or other bytes got what was decoded before")
	}
	// Another sender that sends ever new ones takes nothing from the others, of which each shard has some.
	var others [200]*x402.Requirements
	for i := range others {
		others[i] = accepts(byte(i+10), usualBody(""))
	}
	for i := range 5000 {
		accepts(3, strings.Replace(usualBody(""), "/ask", fmt.Sprint("/ask/", i), 1))
	}
	if accepts(1, usualBody("")) != first {
		t.Error("one sender drove out what another one uses")
	}
	for i, kept := range others {
		if accepts(byte(i+10), usualBody("")) != kept {
			t.Fatal("one sender drove out what another one uses")
		}
	}
}

// TestBodies_Bounded fills the memory with what is dear to keep and cheap to send.
func TestBodies_Bounded(t *testing.T) {
	bodies := x402.NewBodies()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	many := strings.Repeat(`{},`, 100) + `{"asset":"%d"}`
	for i := range 40_000 {
		accepts := fmt.Sprintf(many, i)
		if i%2 == 0 {
			accepts = `{"asset":"` + strings.Repeat("x", 4000) + fmt.Sprint(i) + `"}`
		}
		body := `{"paymentRequired":{"x402Version":2,"accepts":[` + accepts + `]},"x402AccessToken":"a.b.c"}`
		must.Do(t, bodies.Decode(toll.Address{byte(i), byte(i >> 8)}, []byte(body), new(x402.VerifyRequest)))
	}
	if grown := int64(heap()) - int64(before); grown > 40<<20 {
		t.Errorf("%d bytes are kept; 32 MiB are the bound", grown)
	}
	runtime.KeepAlive(bodies)
}

func TestBodies_Race(t *testing.T) {
	bodies := x402.NewBodies()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				body := strings.Replace(usualBody(""), `"7"`, fmt.Sprintf("%q", fmt.Sprint(1+i%40)), 1)
				var r x402.SettleRequest
				if err := bodies.Decode(toll.Address{byte(g / 2)}, []byte(body), &r); err != nil || r.PaymentRequired.Accepts[0].PlanID != fmt.Sprint(1+i%40) {
					t.Fatalf("%v %+v", err, r)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkBodies(b *testing.B) {
	body := []byte(strings.Replace(usualBody(`,"maxAmount":"1"`), "aa.bb.cc", "aa."+strings.Repeat("b", 600)+"."+strings.Repeat("c", 86), 1))
	bodies := x402.NewBodies()
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x402.Decode(body, new(x402.VerifyRequest))
		}
	})
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = bodies.Decode(toll.Address{1}, body, new(x402.VerifyRequest))
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			body := fmt.Appendf(nil, `{"paymentRequired":{"x402Version":2,"error":"%08d",%s`, i, body[len(`{"paymentRequired":{"x402Version":2,`):])
			_ = bodies.Decode(toll.Address{1}, body, new(x402.VerifyRequest))
		}
	})
}
