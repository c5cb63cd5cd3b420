package toll

import "math/bits"

// keccakRounds are the round constants of Keccak-f[1600] (FIPS 202, section 3.2.5).
var keccakRounds = [24]uint64{
	0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b, 0x0000000080000001,
	0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
	0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
	0x000000000000800a, 0x800000008000000a, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
}

var (
	keccakRotations = [24]int{1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44}
	keccakLanes     = [24]int{10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1}
)

func keccakF(a *[25]uint64) {
	var c [5]uint64
	for _, rc := range keccakRounds {
		for x := range 5 {
			c[x] = a[x] ^ a[x+5] ^ a[x+10] ^ a[x+15] ^ a[x+20]
		}
		for x := range 5 {
			d := c[(x+4)%5] ^ bits.RotateLeft64(c[(x+1)%5], 1)
			for y := 0; y < 25; y += 5 {
				a[y+x] ^= d
			}
		}
		t := a[1]
		for i, lane := range keccakLanes {
			t, a[lane] = a[lane], bits.RotateLeft64(t, keccakRotations[i])
		}
		for y := 0; y < 25; y += 5 {
			copy(c[:], a[y:y+5])
			for x := range 5 {
				a[y+x] = c[x] ^ (^c[(x+1)%5] & c[(x+2)%5])
			}
		}
		a[0] ^= rc
	}
}

// Keccak256 returns the Keccak-256 hash that Ethereum uses: the padding of the original submission, not that of
// SHA3-256, which is why crypto/sha3 does not serve. It is here because the vocabulary prints EIP-55 addresses and
// imports nothing but the standard library.
func Keccak256(data []byte) [32]byte {
	const rate = 136
	var a [25]uint64
	absorb := func(block []byte) {
		for i := range rate / 8 {
			var w uint64
			for j := 7; j >= 0; j-- {
				w = w<<8 | uint64(block[i*8+j])
			}
			a[i] ^= w
		}
		keccakF(&a)
	}
	for len(data) >= rate {
		absorb(data[:rate])
		data = data[rate:]
	}
	var last [rate]byte
	copy(last[:], data)
	last[len(data)] = 0x01
	last[rate-1] |= 0x80
	absorb(last[:])
	var out [32]byte
	for i := range 4 {
		for j := range 8 {
			out[i*8+j] = byte(a[i] >> (8 * j))
		}
	}
	return out
}
