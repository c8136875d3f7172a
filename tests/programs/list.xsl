<?xml version="1.0"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:key name="last" match="n" use=". mod 10"/>
<xsl:template match="/r">
<xsl:for-each select="n[. &gt; 50]"><xsl:sort select="." data-type="number" order="descending"/>
<xsl:value-of select="concat(@id, ':', ., ' ')"/></xsl:for-each>
<xsl:value-of select="concat('sum ', sum(n), ' of ', count(key('last', '7')))"/>
</xsl:template>
</xsl:stylesheet>
