/* The page of deja profile --html without its data (analyses/profile-text.c). */
#ifndef DEJA_ANALYSES_PROFILE_PAGE_H
#define DEJA_ANALYSES_PROFILE_PAGE_H

extern const char ana_page_head[], ana_page_tail[];

#endif
