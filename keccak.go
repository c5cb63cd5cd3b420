package toll

import (
	"encoding/binary"
	"math/bits"
)

// keccakRounds are the round constants of Keccak-f[1600] (FIPS 202, section 3.2.5).
var keccakRounds = [24]uint64{
	0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b, 0x0000000080000001,
	0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
	0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
	0x000000000000800a, 0x800000008000000a, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
}

// keccakF applies the permutation Keccak-f[1600] (FIPS 202, section 3.2). Each round is unrolled with constant indices,
// which is several times faster: theta into c and d, rho and pi into b, then chi and iota.
func keccakF(a *[25]uint64) {
	for _, rc := range keccakRounds {
		c0 := a[0] ^ a[5] ^ a[10] ^ a[15] ^ a[20]
		c1 := a[1] ^ a[6] ^ a[11] ^ a[16] ^ a[21]
		c2 := a[2] ^ a[7] ^ a[12] ^ a[17] ^ a[22]
		c3 := a[3] ^ a[8] ^ a[13] ^ a[18] ^ a[23]
		c4 := a[4] ^ a[9] ^ a[14] ^ a[19] ^ a[24]
		d0 := c4 ^ bits.RotateLeft64(c1, 1)
		d1 := c0 ^ bits.RotateLeft64(c2, 1)
		d2 := c1 ^ bits.RotateLeft64(c3, 1)
		d3 := c2 ^ bits.RotateLeft64(c4, 1)
		d4 := c3 ^ bits.RotateLeft64(c0, 1)

		b0 := a[0] ^ d0
		b1 := bits.RotateLeft64(a[6]^d1, 44)
		b2 := bits.RotateLeft64(a[12]^d2, 43)
		b3 := bits.RotateLeft64(a[18]^d3, 21)
		b4 := bits.RotateLeft64(a[24]^d4, 14)
		b5 := bits.RotateLeft64(a[3]^d3, 28)
		b6 := bits.RotateLeft64(a[9]^d4, 20)
		b7 := bits.RotateLeft64(a[10]^d0, 3)
		b8 := bits.RotateLeft64(a[16]^d1, 45)
		b9 := bits.RotateLeft64(a[22]^d2, 61)
		b10 := bits.RotateLeft64(a[1]^d1, 1)
		b11 := bits.RotateLeft64(a[7]^d2, 6)
		b12 := bits.RotateLeft64(a[13]^d3, 25)
		b13 := bits.RotateLeft64(a[19]^d4, 8)
		b14 := bits.RotateLeft64(a[20]^d0, 18)
		b15 := bits.RotateLeft64(a[4]^d4, 27)
		b16 := bits.RotateLeft64(a[5]^d0, 36)
		b17 := bits.RotateLeft64(a[11]^d1, 10)
		b18 := bits.RotateLeft64(a[17]^d2, 15)
		b19 := bits.RotateLeft64(a[23]^d3, 56)
		b20 := bits.RotateLeft64(a[2]^d2, 62)
		b21 := bits.RotateLeft64(a[8]^d3, 55)
		b22 := bits.RotateLeft64(a[14]^d4, 39)
		b23 := bits.RotateLeft64(a[15]^d0, 41)
		b24 := bits.RotateLeft64(a[21]^d1, 2)

		a[0] = b0 ^ (b2 &^ b1) ^ rc
		a[1] = b1 ^ (b3 &^ b2)
		a[2] = b2 ^ (b4 &^ b3)
		a[3] = b3 ^ (b0 &^ b4)
		a[4] = b4 ^ (b1 &^ b0)
		a[5] = b5 ^ (b7 &^ b6)
		a[6] = b6 ^ (b8 &^ b7)
		a[7] = b7 ^ (b9 &^ b8)
		a[8] = b8 ^ (b5 &^ b9)
		a[9] = b9 ^ (b6 &^ b5)
		a[10] = b10 ^ (b12 &^ b11)
		a[11] = b11 ^ (b13 &^ b12)
		a[12] = b12 ^ (b14 &^ b13)
		a[13] = b13 ^ (b10 &^ b14)
		a[14] = b14 ^ (b11 &^ b10)
		a[15] = b15 ^ (b17 &^ b16)
		a[16] = b16 ^ (b18 &^ b17)
		a[17] = b17 ^ (b19 &^ b18)
		a[18] = b18 ^ (b15 &^ b19)
		a[19] = b19 ^ (b16 &^ b15)
		a[20] = b20 ^ (b22 &^ b21)
		a[21] = b21 ^ (b23 &^ b22)
		a[22] = b22 ^ (b24 &^ b23)
		a[23] = b23 ^ (b20 &^ b24)
		a[24] = b24 ^ (b21 &^ b20)
	}
}

// Keccak256 returns the Keccak-256 hash that Ethereum uses. Its padding is the one of the original submission and differs from SHA3-256, so
// crypto/sha3 cannot compute it. This package implements it to format EIP-55 addresses without a dependency.
func Keccak256(data []byte) [32]byte {
	const rate = 136
	var a [25]uint64
	absorb := func(block []byte) {
		for i := range rate / 8 {
			a[i] ^= binary.LittleEndian.Uint64(block[i*8:])
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
		binary.LittleEndian.PutUint64(out[i*8:], a[i])
	}
	return out
}
