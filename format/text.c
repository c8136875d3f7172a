/* Text out of a trace: see text.h. */
#include "format/text.h"

size_t dj_text_utf8(const char *text, uint32_t *character)
{
	const unsigned char *s = (const unsigned char *)text;
	static const struct {
		unsigned char first, last, lo, hi, length; /* lo..hi: the second byte */
							   /* clang-format off */
	} forms[] = {
		{ 0x01, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 },
		{ 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 },
		{ 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};
	/* clang-format on */

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (*s < forms[i].first || *s > forms[i].last)
			continue;
		*character = forms[i].length == 1 ? *s : *s & (0x7fu >> forms[i].length);
		for (size_t k = 1; k < forms[i].length; k++) {
			unsigned char lo = k == 1 ? forms[i].lo : 0x80;
			unsigned char hi = k == 1 ? forms[i].hi : 0xbf;

			if (s[k] < lo || s[k] > hi)
				return 0;
			*character = *character << 6 | (s[k] & 0x3f);
		}
		return forms[i].length;
	}
	return 0;
}

size_t dj_text_letter(const char *s)
{
	uint32_t c = 0;
	size_t n = dj_text_utf8(s, &c);

	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return 0;
	/* marks and embeddings of direction, separators of lines and paragraphs
	 * (Unicode, 9.2, 23.2) */
	if ((c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	    (c >= 0x2066 && c <= 0x2069) || c == 0x61c)
		return 0;
	return n;
}

void dj_text_clean(char *text)
{
	while (*text) {
		size_t n = dj_text_letter(text);

		if (!n)
			*text = '?';
		text += n ? n : 1;
	}
}
