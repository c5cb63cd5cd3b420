package toll_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"golang.org/x/crypto/sha3"

	"github.com/tollhq/toll"
)

func TestKeccak256_Vectors(t *testing.T) {
	for in, want := range map[string]string{
		"":    "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
		"abc": "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45",
		"The quick brown fox jumps over the lazy dog": "4d741b6f1eb29cb2a9b9911c82f56fa8d73b04959d3d9d222895df6c0b28aa15",
	} {
		if h := toll.Keccak256([]byte(in)); hex.EncodeToString(h[:]) != want {
			t.Errorf("Keccak256(%q) = %x, want %s", in, h, want)
		}
	}
}

// Every length around the block size of 136 bytes, where padding goes wrong first.
func TestKeccak256_EqualsReference(t *testing.T) {
	r := rand.New(rand.NewChaCha8([32]byte{1}))
	for n := range 700 {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		ref := sha3.NewLegacyKeccak256()
		ref.Write(data)
		if h := toll.Keccak256(data); !bytes.Equal(h[:], ref.Sum(nil)) {
			t.Fatalf("length %d: got %x, want %x", n, h, ref.Sum(nil))
		}
	}
}

// The vectors of EIP-55.
func TestAddress_EIP55(t *testing.T) {
	for _, want := range []string{
		"0x52908400098527886E0F7030069857D2E4169EE7", "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
		"0xde709f2102306220921060314715629080e2fb77", "0x27b1fdb04752bbc536007a920d24acb045561c26",
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
		"0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB", "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
	} {
		for _, in := range []string{want, string(bytes.ToLower([]byte(want))), "0x" + string(bytes.ToUpper([]byte(want[2:])))} {
			a, err := toll.ParseAddress(in)
			if err != nil || a.String() != want {
				t.Errorf("ParseAddress(%s) = %s, %v, want %s", in, a, err, want)
			}
		}
	}
}

func TestPayAsYouGoTemplate(t *testing.T) {
	h := toll.Keccak256([]byte("toll:PayAsYouGoTemplate"))
	if got := toll.Address(h[12:]); got != toll.PayAsYouGoTemplate {
		t.Errorf("the marker is %s, want %s", toll.PayAsYouGoTemplate, got)
	}
}

func BenchmarkAddress_String(b *testing.B) {
	a := toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	for b.Loop() {
		_ = a.String()
	}
}
