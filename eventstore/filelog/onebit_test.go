// What looks like a bit that flipped, and is a torn record.

package filelog

import (
	"hash/crc32"
	"testing"
)

// TestOneBitOff: a flipped bit is told from a torn record of which a bit would make the
// first checksum right, and from garbage that is one bit off and goes on in the padding.
func TestOneBitOff(t *testing.T) {
	const at, salt, flipped = 128, 77, recordHeader*8 + 100
	record := func() []byte {
		body := []byte("a body that ends one byte behind a multiple of 8.")
		return seal(append(make([]byte, recordHeader), body...), recordHead{salt: salt, kind: kindFence, position: 3, synced: at}, at)
	}
	b := record()
	b[flipped/8] ^= 1 << (flipped % 8)
	if bit, ok := oneBitOff(b, at, salt); !ok || bit != flipped {
		t.Errorf("bit %d flipped: %d, %t", flipped, bit, ok)
	}
	// The polynomial itself: CRC-32C does not see it.
	torn := b
	for i, pattern := 0, 1|uint64(crc32.Castagnoli)<<1; pattern > 0; i, pattern = i+1, pattern>>8 {
		torn[recordHeader+20+i] ^= byte(pattern)
	}
	if d := checksum(torn[:recordHeader+49], at) ^ decodeHead(torn).crc; d == 0 {
		t.Fatal("the record is valid")
	} else if bit, ok := flippedBit(d, 49); !ok || bit != 100 {
		t.Fatalf("a bit that makes the first checksum right: %d, %t", bit, ok)
	}
	if bit, ok := oneBitOff(torn, at, salt); ok {
		t.Errorf("a torn record was taken for one with bit %d flipped", bit)
	}
	garbage := record()
	garbage[recordHeader+48] ^= 8
	copy(garbage[recordHeader+49:], "garbage")
	if bit, ok := oneBitOff(garbage, at, salt); ok {
		t.Errorf("garbage was taken for bit %d flipped", bit)
	}
}
