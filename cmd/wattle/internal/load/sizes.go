// Payload sizes: how they are written, and payloads made of them.

package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// Bounds of sizes.
const (
	maxSizes  = 100
	maxWeight = 1_000_000
)

// Size is a payload size and how often it is among the others.
type Size struct{ Bytes, Weight int }

// Sizes are those that payloads have.
type Sizes []Size

// ParseSizes reads sizes with weights, as "1k:9,32k:1": k is 1024 bytes, m is 1024 k,
// no weight is 1. Anything else is ErrInvalid.
func ParseSizes(text string) (Sizes, error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxSizes {
		return nil, invalid(fmt.Sprintf("--sizes: at most %d", maxSizes), fmt.Sprint(len(parts)))
	}
	var all Sizes
	for _, part := range parts {
		size, weight, weighed := strings.Cut(part, ":")
		s := Size{Weight: 1}
		var ok bool
		if s.Bytes, ok = parseBytes(size); !ok {
			return nil, invalid(fmt.Sprintf("--sizes like 900 or 1k:9,32k:1, each of 0 to %dm", eventstore.MaxEventBytes>>20), strconv.Quote(part))
		}
		if weighed {
			if s.Weight, ok = parseCount(weight, maxWeight); !ok || s.Weight == 0 {
				return nil, invalid(fmt.Sprintf("--sizes: a weight of 1 to %d", maxWeight), strconv.Quote(part))
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// parseBytes reads a number of bytes that an event may have.
func parseBytes(text string) (n int, ok bool) {
	unit := 1
	if digits, found := strings.CutSuffix(text, "k"); found {
		text, unit = digits, 1<<10
	} else if digits, found := strings.CutSuffix(text, "m"); found {
		text, unit = digits, 1<<20
	}
	n, ok = parseCount(text, eventstore.MaxEventBytes/unit)
	return n * unit, ok
}

// parseCount reads digits alone, no sign.
func parseCount(text string, most int) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return int(n), err == nil && n <= uint64(most)
}

// most is the largest size.
func (s Sizes) most() (n int) {
	for _, size := range s {
		n = max(n, size.Bytes)
	}
	return n
}

// payloads makes the payloads of one log: bytes that do not compress, cut out of a
// noise that all logs share. The same seed and log give the same payloads.
type payloads struct {
	sizes Sizes
	total int // of the weights
	rng   *rand.Rand
	noise []byte
}

// spareNoise is how many places there are at least to cut a payload out.
const spareNoise = 1 << 20

func noiseOf(seed uint64, sizes Sizes) []byte {
	noise := make([]byte, sizes.most()+spareNoise)
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(noise) // it never fails
	return noise
}

func newPayloads(seed, log uint64, sizes Sizes, noise []byte) *payloads {
	p := &payloads{sizes: sizes, rng: rand.New(rand.NewPCG(seed, log)), noise: noise}
	for _, s := range sizes {
		p.total += s.Weight
	}
	return p
}

// next returns a payload, which must not be changed.
func (p *payloads) next() []byte {
	n := p.size(p.rng.IntN(p.total))
	at := p.rng.IntN(spareNoise)
	return p.noise[at : at+n : at+n]
}

func (p *payloads) size(ticket int) int {
	for _, s := range p.sizes {
		if ticket -= s.Weight; ticket < 0 {
			return s.Bytes
		}
	}
	return 0 // not reached: tickets lie below the total
}
